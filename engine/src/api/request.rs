//! How a request is taken apart: its body within limits of size and time, its query without unknown parameters.

use std::{future::Future, pin::Pin, time::Duration};

use actix_web::{FromRequest, HttpRequest, dev::Payload, http::header, rt::time::timeout, web};
use futures_util::StreamExt;

use super::{
    errors::ApiError,
    fields::{invalid, quoted},
    json::Node,
    words::{self, Words},
};
use crate::{
    error::Refusal,
    kernel::{id::check_name, time::UnixMs},
};

/// Longest body.
pub(crate) const BODY_BYTES: usize = 1024 * 1024;
/// How much of a body that is too long is read and dropped, so that a client that writes before it reads hears why.
const DRAINED_BYTES: usize = 8 * BODY_BYTES;
/// How long a body may take to arrive.
const BODY_SECONDS: u64 = 10;
/// Longest cursor.
const CURSOR_BYTES: usize = 512;
/// Largest page of a listing.
const LIMIT: std::ops::RangeInclusive<usize> = 1..=500;
/// Page of a listing where nothing is said.
const DEFAULT_LIMIT: usize = 100;

/// A body of JSON.
pub(crate) struct JsonBody(pub(crate) Node);

impl FromRequest for JsonBody {
    type Error = ApiError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, ApiError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let announced = announced_bytes(request);
        let payload = payload.take();
        Box::pin(async move {
            if announced.is_some_and(|bytes| bytes > DRAINED_BYTES as u64) {
                return Err(ApiError::too_large(BODY_BYTES));
            }
            let read = timeout(Duration::from_secs(BODY_SECONDS), read_body(payload));
            let bytes = read.await.map_err(|_| ApiError::too_slow(BODY_SECONDS))??;
            parse(&bytes).map(Self)
        })
    }
}

fn announced_bytes(request: &HttpRequest) -> Option<u64> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn read_body(mut payload: Payload) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    let mut seen_bytes = 0;
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| ApiError::invalid_json("the body ended early: send all of it"))?;
        seen_bytes += chunk.len();
        if seen_bytes <= BODY_BYTES {
            bytes.extend_from_slice(&chunk);
        } else if seen_bytes > DRAINED_BYTES {
            break;
        }
    }
    if seen_bytes > BODY_BYTES { Err(ApiError::too_large(BODY_BYTES)) } else { Ok(bytes) }
}

fn parse(bytes: &[u8]) -> Result<Node, ApiError> {
    if bytes.is_empty() {
        return Err(ApiError::invalid_json("the body is empty: send a JSON object"));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::invalid_json(format!("the body is no JSON: {error}: send one JSON object")))
}

/// The parameters of a query, each taken once. An empty one is the same as one that was left out.
pub(crate) struct Query {
    given: Vec<(String, String)>,
}

impl Query {
    /// The parameters of `request`, of which only `known` may be there.
    pub(crate) fn of(request: &HttpRequest, known: &[&str]) -> Result<Self, Refusal> {
        let query = web::Query::<Vec<(String, String)>>::from_query(request.query_string())
            .map_err(|error| invalid("", format!("the query does not read: {error}: encode it as a form")))?;
        let given = query.into_inner();
        for (index, (name, _)) in given.iter().enumerate() {
            let shown: String = name.chars().take(64).collect();
            if !known.contains(&name.as_str()) {
                let there = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(invalid(shown, format!("is not a parameter here: leave it out; there are {there}")));
            }
            if given[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(invalid(shown, "is given twice: give it once"));
            }
        }
        Ok(Self { given })
    }

    /// The text of the parameter `name`.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.given.iter().find(|(given, value)| given == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// The name of a tenant or a queue.
    pub(crate) fn name(&self, name: &str) -> Result<Option<String>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        check_name(text).map_err(|problem| invalid(name, problem))?;
        Ok(Some(text.to_owned()))
    }

    /// One of a choice of words.
    pub(crate) fn word<T: Copy>(&self, name: &str, words: Words<T>) -> Result<Option<T>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        words::meaning(words, text).map(Some).map_err(|problem| invalid(name, format!("{} {problem}", quoted(text))))
    }

    /// An RFC 3339 instant.
    pub(crate) fn instant(&self, name: &str) -> Result<Option<UnixMs>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        // In a query a bare + reads as a space: 01:30:00+02:00 arrives as 01:30:00 02:00.
        let instant = UnixMs::parse_rfc3339(&text.replace(' ', "+"));
        instant.map(Some).ok_or_else(|| {
            let message = format!("{} must be an RFC 3339 instant such as 2026-11-01T05:30:00.000Z", quoted(text));
            invalid(name, message)
        })
    }

    /// How many items, and where to go on.
    pub(crate) fn page(&self) -> Result<(usize, Option<String>), Refusal> {
        let limit = match self.text("limit") {
            None => DEFAULT_LIMIT,
            Some(text) => text.parse().ok().filter(|limit| LIMIT.contains(limit)).ok_or_else(|| {
                let message = format!("{} must be a whole number from 1 to {}", quoted(text), LIMIT.end());
                invalid("limit", message)
            })?,
        };
        let cursor = self.text("cursor");
        if cursor.is_some_and(|cursor| cursor.len() > CURSOR_BYTES) {
            return Err(invalid("cursor", "is longer than any cursor: give next_cursor of the page before as it was"));
        }
        Ok((limit, cursor.map(str::to_owned)))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn query(text: &str) -> Result<Query, Refusal> {
        let request = TestRequest::with_uri(&format!("/v1/schedules?{text}")).to_http_request();
        Query::of(&request, &["state", "from", "limit", "cursor"])
    }

    #[test]
    fn a_query_is_read_with_its_defaults() {
        let given = query("state=active&limit=500&cursor=a%2Bb&from=2026-11-01T01:30:00%2B02:00").unwrap();
        assert_eq!(given.page(), Ok((500, Some("a+b".to_owned()))));
        assert!(given.word("state", words::SCHEDULE_STATE).unwrap().is_some());
        assert_eq!(given.instant("from").unwrap().unwrap().to_string(), "2026-10-31T23:30:00.000Z");
        assert_eq!(query("limit=&cursor=&state=").unwrap().page(), Ok((100, None)));
        assert_eq!(query("from=2026-11-01T01:30:00+02:00").unwrap().instant("from").unwrap().unwrap().0 % 1_000, 0);
    }

    #[test]
    fn a_bad_query_is_refused_by_its_parameter() {
        for (bad, field) in [("tenants=a", "tenants"), ("state=a&state=b", "state"), ("%ff=1", "\u{fffd}")] {
            assert_eq!(query(bad).map(|_| ()).unwrap_err().field, field, "{bad}");
        }
        for bad in ["limit=0", "limit=501", "limit=-1", "limit=ten", "limit=1e2"] {
            assert_eq!(query(bad).unwrap().page().unwrap_err().field, "limit", "{bad}");
        }
        assert_eq!(query(&format!("cursor={}", "x".repeat(513))).unwrap().page().unwrap_err().field, "cursor");
        assert_eq!(query("from=now").unwrap().instant("from").unwrap_err().field, "from");
        let refusal = query("state=ACTIVE").unwrap().word("state", words::SCHEDULE_STATE).unwrap_err();
        assert!(refusal.message.contains("active, completed, canceled"), "{}", refusal.message);
    }

    #[test]
    fn what_is_no_json_is_told_with_its_place() {
        assert!(parse(b"").is_err());
        for bad in ["{", "{\"a\":}", "nul", "{} {}", "\u{feff}{}", "{'a':1}"] {
            assert!(parse(bad.as_bytes()).unwrap_err().to_string().contains("invalid_json"), "{bad}");
        }
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
        assert_eq!(parse(b" {} ").unwrap(), Node::Object(vec![]));
    }
}
