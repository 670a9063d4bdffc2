//! One request and its answer: JSON there, JSON back, every failure a sentence.

use std::{io, path::Path, time::Duration};

use serde_json::Value;
use ureq::{
    Agent,
    config::ConfigBuilder,
    http::{Method, Request, Uri},
    typestate::AgentScope,
};

use super::error::{ClientError, line_of};
use crate::http_trust;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may think before it begins to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest answer that is read: 500 schedules with the longest payloads.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// A server, and as whom to speak to it.
pub(super) struct Client {
    agent: Agent,
    base: String,
    token: Option<String>,
}

/// What is asked.
#[derive(Clone)]
pub(super) struct Ask {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
    body: Option<(&'static str, Vec<u8>)>,
}

impl Ask {
    /// `path` begins with `/v1` and holds what [`segment`] made of ids.
    pub(super) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), query: Vec::new(), headers: Vec::new(), body: None }
    }

    /// Adds a parameter, if it is there.
    pub(super) fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Adds a header, if it is there.
    pub(super) fn header(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.headers.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Sends this value.
    pub(super) fn json(mut self, body: &Value) -> Self {
        self.body = Some(("application/json", body.to_string().into_bytes()));
        self
    }

    /// Sends these lines.
    pub(super) fn lines(mut self, lines: Vec<u8>) -> Self {
        self.body = Some(("application/x-ndjson", lines));
        self
    }

    fn target(&self) -> String {
        let mut target = self.path.clone();
        for (index, (name, value)) in self.query.iter().enumerate() {
            target.push(if index == 0 { '?' } else { '&' });
            target.push_str(name);
            target.push('=');
            target.push_str(&segment(value));
        }
        target
    }
}

impl Client {
    pub(super) fn new(url: &str, token: Option<String>, ca: Option<&Path>) -> Result<Self, ClientError> {
        let refuse = |why: &str| {
            let shown = crate::cli::redact::redacted(url);
            ClientError::Usage(format!("--url {shown}: {why}: give one such as http://127.0.0.1:7171"))
        };
        let uri: Uri = url.parse().map_err(|_| refuse("is no URL"))?;
        let authority = uri.authority().ok_or_else(|| refuse("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(refuse("holds a user, which would be ignored"));
        }
        let builder = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(ANSWER_TIMEOUT))
            .user_agent(concat!("countwheel/", env!("CARGO_PKG_VERSION")));
        let builder = match uri.scheme_str() {
            Some("http") => builder,
            Some("https") => trusting(builder, ca)?,
            _ => return Err(refuse("is neither http nor https")),
        };
        // What runs on this machine is not reached through a proxy.
        let builder = if is_loopback(uri.host().unwrap_or_default()) { builder.proxy(None) } else { builder };
        Ok(Self { agent: builder.build().new_agent(), base: url.trim_end_matches('/').to_owned(), token })
    }

    /// Asks, and reads the answer as JSON.
    pub(super) fn ask(&self, ask: &Ask) -> Result<Value, ClientError> {
        let (status, text) = self.exchange(ask)?;
        let body: Value = serde_json::from_str(&text).map_err(|_| self.odd(status))?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        Err(self.refused(ask, status, body))
    }

    /// Asks, and reads the answer as lines of JSON.
    pub(super) fn ask_lines(&self, ask: &Ask) -> Result<Vec<Value>, ClientError> {
        let (status, text) = self.exchange(ask)?;
        if !(200..300).contains(&status) {
            let body = serde_json::from_str(&text).map_err(|_| self.odd(status))?;
            return Err(self.refused(ask, status, body));
        }
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| serde_json::from_str(line).map_err(|_| self.odd(status))).collect()
    }

    /// The failure of an answer that makes no sense.
    pub(super) fn odd(&self, status: u16) -> ClientError {
        ClientError::Odd { url: self.base.clone(), status }
    }

    fn refused(&self, ask: &Ask, status: u16, body: Value) -> ClientError {
        let error = &body["error"];
        let is_no_path = error["message"].as_str().is_some_and(|message| message.contains("at this path"));
        if error["code"] == "method_not_allowed" || (status == 404 && is_no_path) {
            let path = ask.path.clone();
            return ClientError::NotBuilt { url: self.base.clone(), call: format!("{} {path}", ask.method) };
        }
        match line_of(&body) {
            Some(line) => ClientError::Refused { line, body },
            None => self.odd(status),
        }
    }

    fn exchange(&self, ask: &Ask) -> Result<(u16, String), ClientError> {
        let mut request = Request::builder().method(&ask.method).uri(format!("{}{}", self.base, ask.target()));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        if let Some((kind, _)) = &ask.body {
            request = request.header("Content-Type", *kind);
        }
        let unusable = |error: ureq::http::Error| ClientError::Usage(format!("the request cannot be sent: {error}"));
        let answer = match &ask.body {
            Some((_, body)) => self.agent.run(request.body(body.as_slice()).map_err(unusable)?),
            None => self.agent.run(request.body(()).map_err(unusable)?),
        };
        let unreachable = |error| ClientError::Unreachable { url: self.base.clone(), why: why(&error) };
        let answer = answer.map_err(unreachable)?;
        let status = answer.status().as_u16();
        let text = answer.into_body().into_with_config().limit(MAX_ANSWER_BYTES).read_to_string();
        Ok((status, text.map_err(unreachable)?))
    }
}

fn trusting(builder: ConfigBuilder<AgentScope>, ca: Option<&Path>) -> Result<ConfigBuilder<AgentScope>, ClientError> {
    http_trust::trusting(builder, ca).map_err(|error| {
        ClientError::Usage(match error {
            #[cfg(feature = "tls")]
            http_trust::TrustError::File { .. } => format!("--ca {error}"),
            error => error.to_string(),
        })
    })
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn why(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            "nothing listens there: start the server or correct --url".to_owned()
        }
        ureq::Error::Io(error) => format!(
            "the connection failed ({error}): is the server well, is it http or https, is its certificate known (--ca)"
        ),
        ureq::Error::HostNotFound => "there is no such host: correct --url".to_owned(),
        ureq::Error::Timeout(_) => "no answer in time: is the server overloaded".to_owned(),
        ureq::Error::TooManyRedirects => {
            "it answers with a redirection, which is not followed: correct --url".to_owned()
        }
        error => format!("{error}: is this a countwheel server, and does it speak http or https"),
    }
}

/// A text as a part of a path, or as a value: what is not unreserved (RFC 3986) is escaped.
pub(super) fn segment(text: &str) -> String {
    let escaped = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_escaped() {
        let ask = Ask::new(Method::GET, "/v1/schedules").query("cursor", Some("a b&c=ü/")).query("limit", None::<u32>);
        assert_eq!(
            ask.query("state", Some("active")).target(),
            "/v1/schedules?cursor=a%20b%26c%3D%C3%BC%2F&state=active"
        );
    }

    #[test]
    fn a_url_that_is_none_is_refused_without_its_password() {
        for url in ["", "127.0.0.1:7171", "ftp://host", "http://", "http://u:s3cret@host", "redis://h"] {
            let error = Client::new(url, None, None).map(|_| ()).unwrap_err();
            assert!(matches!(error, ClientError::Usage(_)) && !error.to_string().contains("s3cret"), "{url}: {error}");
        }
        assert!(Client::new("http://[::1]:7171/", None, None).is_ok());
    }
}
