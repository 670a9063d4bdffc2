//! How a request is taken apart: its body within limits of size and time, its query and head without what is not known.

use std::{
    future::{Future, Ready, ready},
    pin::Pin,
    time::Duration,
};

use actix_web::{
    FromRequest, HttpMessage, HttpRequest,
    dev::Payload,
    http::header::{self, HeaderMap, HeaderName},
    rt::time::timeout,
    web,
};
use futures_util::StreamExt;

use super::{
    errors::ApiError,
    fields::{Fields, Null, invalid, quoted},
    json::Node,
    shape::Field,
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
            parse(&read_in_time(payload).await?).map(Self)
        })
    }
}

/// The body of a call that takes none: nothing, or an object without fields.
pub(crate) struct NoBody;

impl FromRequest for NoBody {
    type Error = ApiError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, ApiError>>>>;

    fn from_request(_: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let payload = payload.take();
        Box::pin(async move {
            let bytes = read_in_time(payload).await?;
            if !bytes.is_empty() {
                Fields::of(parse(&bytes)?, "", &[], Null::LeftOut)?;
            }
            Ok(Self)
        })
    }
}

async fn read_in_time(payload: Payload) -> Result<Vec<u8>, ApiError> {
    let read = timeout(Duration::from_secs(BODY_SECONDS), read_body(payload));
    read.await.map_err(|_| ApiError::too_slow(BODY_SECONDS))?
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

pub(crate) fn parse(bytes: &[u8]) -> Result<Node, ApiError> {
    if bytes.is_empty() {
        return Err(ApiError::invalid_json("the body is empty: send a JSON object"));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::invalid_json(format!("the body is no JSON: {error}: send one JSON object")))
}

/// Header of a call that may be repeated until it is answered.
pub(crate) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// Header of a change that is meant for one version.
pub(crate) const IF_MATCH: &str = "If-Match";

/// Refuses the headers that change what a call means and that it does not take.
pub(crate) fn check_head(head: &HeaderMap, taken: &[Field]) -> Result<(), Refusal> {
    for name in [IDEMPOTENCY_KEY, IF_MATCH] {
        if head.contains_key(name) && !taken.iter().any(|field| field.name == name) {
            return Err(invalid(name, "this call does not take the header and would ignore it: send no such header"));
        }
    }
    Ok(())
}

/// Refuses bodies that would have to be unpacked: what is compressed may be of any length.
pub(crate) fn check_encoding(head: &HeaderMap) -> Result<(), ApiError> {
    for encoding in head.get_all(header::CONTENT_ENCODING) {
        if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") {
            return Err(ApiError::unsupported_encoding(&quoted(&String::from_utf8_lossy(encoding.as_bytes()))));
        }
    }
    Ok(())
}

fn header_text<'a>(head: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Refusal> {
    let Ok(known) = HeaderName::from_bytes(name.as_bytes()) else { return Ok(None) };
    let mut values = head.get_all(known);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(invalid(name, "is given twice: give it once")),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| {
            let shown = String::from_utf8_lossy(value.as_bytes());
            invalid(name, format!("{} is not printable ASCII: give a key of ASCII characters", quoted(&shown)))
        }),
    }
}

/// The idempotency key of a request.
pub(crate) fn idempotency_key(head: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let key = header_text(head, IDEMPOTENCY_KEY)?;
    key.map(|key| check_key(IDEMPOTENCY_KEY, key)).transpose()?;
    Ok(key)
}

/// Keys are 1 to 255 printable ASCII characters, so that they are the same in a header and in a body.
pub(crate) fn check_key(field: &str, key: &str) -> Result<(), Refusal> {
    if !(1..=255).contains(&key.len()) {
        let message = format!("{} has {} bytes: give a key of 1 to 255", quoted(key), key.len());
        return Err(invalid(field, message));
    }
    if !key.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        let message = format!("{} is not printable ASCII: give a key of ASCII characters", quoted(key));
        return Err(invalid(field, message));
    }
    Ok(())
}

/// The version that a change is meant for, bare or quoted.
pub(crate) fn if_match(head: &HeaderMap) -> Result<Option<u32>, Refusal> {
    let Some(text) = header_text(head, IF_MATCH)? else { return Ok(None) };
    let bare = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let is_number = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
    let version = bare.parse().ok().filter(|version| is_number && *version > 0);
    version.map(Some).ok_or_else(|| invalid(IF_MATCH, format!("{} is no version: give one such as 3", quoted(text))))
}

/// The parameters of a query, each taken once, none unknown.
#[derive(Debug, Default)]
pub(crate) struct Query {
    given: Vec<(String, String)>,
}

/// What [`super::admit`] read and checked.
impl FromRequest for Query {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(request.extensions_mut().remove::<Self>().unwrap_or_default()))
    }
}

impl Query {
    /// The parameters in `text`, of which only `known` may be there. Only a cursor may be empty: that is the beginning.
    pub(crate) fn read(text: &str, known: &[Field]) -> Result<Self, Refusal> {
        let query = web::Query::<Vec<(String, String)>>::from_query(text)
            .map_err(|error| invalid("", format!("the query does not read: {error}: encode it as a form")))?;
        let given = query.into_inner();
        for (index, (name, value)) in given.iter().enumerate() {
            let shown: String = name.chars().take(64).collect();
            if !known.iter().any(|field| field.name == name) {
                let names: Vec<&str> = known.iter().map(|field| field.name).collect();
                let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                let message = format!("{} is not a parameter here: leave it out; there are {there}", quoted(name));
                return Err(invalid(shown, message));
            }
            if given[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(invalid(shown, "is given twice: give it once"));
            }
            if value.is_empty() && name != "cursor" {
                return Err(invalid(shown, "is empty: give it a value or leave it out"));
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
        check_name(text).map_err(|problem| invalid(name, format!("{} {problem}", quoted(text))))?;
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
    use crate::api::shape::Shape;

    fn query(text: &str) -> Result<Query, Refusal> {
        const KNOWN: &[Field] = &[
            Field::new("state", Shape::Text, ""),
            Field::new("from", Shape::Instant, ""),
            Field::new("limit", Shape::COUNT, ""),
            Field::new("cursor", Shape::Text, ""),
        ];
        Query::read(text, KNOWN)
    }

    #[test]
    fn a_query_is_read_with_its_defaults() {
        let given = query("state=active&limit=500&cursor=a%2Bb&from=2026-11-01T01:30:00%2B02:00").unwrap();
        assert_eq!(given.page(), Ok((500, Some("a+b".to_owned()))));
        assert!(given.word("state", words::SCHEDULE_STATE).unwrap().is_some());
        assert_eq!(given.instant("from").unwrap().unwrap().to_string(), "2026-10-31T23:30:00.000Z");
        assert_eq!(query("cursor=").unwrap().page(), Ok((100, None)), "an empty cursor is the beginning");
        assert_eq!(query("from=2026-11-01T01:30:00+02:00").unwrap().instant("from").unwrap().unwrap().0 % 1_000, 0);
    }

    #[test]
    fn a_bad_query_is_refused_by_its_parameter() {
        for (bad, field) in [("tenants=a", "tenants"), ("state=a&state=b", "state"), ("%ff=1", "\u{fffd}")] {
            assert_eq!(query(bad).unwrap_err().field, field, "{bad}");
        }
        for bad in ["state=", "state", "limit=", "from="] {
            assert!(query(bad).unwrap_err().message.contains("is empty"), "{bad}");
        }
        for bad in ["limit=0", "limit=501", "limit=-1", "limit=ten", "limit=1e2"] {
            assert_eq!(query(bad).unwrap().page().unwrap_err().field, "limit", "{bad}");
        }
        assert_eq!(query(&format!("cursor={}", "x".repeat(513))).unwrap().page().unwrap_err().field, "cursor");
        assert_eq!(query("from=now").unwrap().instant("from").unwrap_err().field, "from");
        let refusal = query("state=ACTIVE").unwrap().word("state", words::SCHEDULE_STATE).unwrap_err();
        assert!(refusal.message.contains("active, paused, completed, canceled"), "{}", refusal.message);
    }

    fn head(name: &'static str, value: &[u8]) -> HeaderMap {
        let value = header::HeaderValue::from_bytes(value).unwrap();
        TestRequest::default().insert_header((name, value)).to_http_request().headers().clone()
    }

    #[test]
    fn a_key_has_1_to_255_printable_ascii_characters() {
        assert_eq!(idempotency_key(&HeaderMap::new()), Ok(None));
        for fine in ["k", " a key: with ~ marks ", &"x".repeat(255)] {
            assert_eq!(idempotency_key(&head(IDEMPOTENCY_KEY, fine.as_bytes())), Ok(Some(fine)));
        }
        for bad in [b"".as_slice(), &[b'x'; 256], "schlüssel".as_bytes(), b"\xff", b"tab\tbed"] {
            assert_eq!(idempotency_key(&head(IDEMPOTENCY_KEY, bad)).unwrap_err().field, IDEMPOTENCY_KEY, "{bad:?}");
        }
        let mut two = head(IDEMPOTENCY_KEY, b"a");
        two.append(HeaderName::from_static("idempotency-key"), header::HeaderValue::from_static("b"));
        assert!(idempotency_key(&two).unwrap_err().message.contains("twice"));
        assert_eq!(check_head(&two, &[]).unwrap_err().field, IDEMPOTENCY_KEY);
    }

    #[test]
    fn a_version_is_bare_or_quoted() {
        assert_eq!(if_match(&HeaderMap::new()), Ok(None));
        for (text, version) in [("3", 3), ("\"3\"", 3), ("4294967295", u32::MAX)] {
            assert_eq!(if_match(&head(IF_MATCH, text.as_bytes())), Ok(Some(version)));
        }
        for bad in ["", "*", "0", "-1", "+1", "W/\"3\"", "\"3", "3, 4", "4294967296", "three"] {
            assert_eq!(if_match(&head(IF_MATCH, bad.as_bytes())).unwrap_err().field, IF_MATCH, "{bad:?}");
        }
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
