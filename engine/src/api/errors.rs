//! How a failure is told to a client: status, stable code, sentence, field.

use std::fmt;

use actix_web::{
    HttpResponse, ResponseError,
    http::{StatusCode, header},
};
use serde::{Serialize, Serializer};

use super::auth::Role;
use crate::{
    error::{CallError, ClaimRefusal, Refusal, RefusalCode, RunError},
    kernel::occurrence::State,
};

/// Every code there is, with its status.
pub(crate) const CODES: &[(&str, u16)] = &[
    ("invalid_json", 400),
    ("unauthorized", 401),
    ("forbidden", 403),
    ("cross_origin", 403),
    ("not_found", 404),
    ("method_not_allowed", 405),
    ("request_timeout", 408),
    ("canceled", 409),
    ("idempotency_conflict", 409),
    ("no_local_queue", 409),
    ("already_running", 409),
    ("waiting", 409),
    ("superseded", 409),
    ("paused", 409),
    ("skipped_overlap", 409),
    ("tenant_concurrency", 409),
    ("held", 409),
    ("missed", 409),
    ("finished", 409),
    ("stale_lease", 409),
    ("not_asked_to_stop", 409),
    ("not_dead", 409),
    ("not_held", 409),
    ("archived", 410),
    ("version_mismatch", 412),
    ("too_large", 413),
    ("unsupported_encoding", 415),
    ("invalid", 422),
    ("invalid_cron", 422),
    ("unknown_zone", 422),
    ("never_fires", 422),
    ("in_the_past", 422),
    ("window_too_long", 422),
    ("misfire_required", 422),
    ("review_owner_required", 422),
    ("restate_policies", 422),
    ("too_many", 422),
    ("quota_schedules", 429),
    ("internal", 500),
    ("disk_full", 503),
    ("not_heard", 503),
    ("fenced", 503),
    ("overloaded", 503),
    ("poisoned", 503),
    ("stopping", 503),
];

/// Codes that every call may answer with.
pub(crate) const COMMON: &[&str] = &[
    "unauthorized",
    "forbidden",
    "cross_origin",
    "invalid",
    "internal",
    "overloaded",
    "poisoned",
    "fenced",
    "stopping",
];
/// Codes that every call with a body may answer with.
pub(crate) const OF_BODIES: &[&str] = &["invalid_json", "too_large", "unsupported_encoding", "request_timeout"];
/// Codes that a call without a token may answer with.
pub(crate) const OPEN: &[&str] = &["cross_origin", "invalid"];

/// An answer that is no success: `{"error":{"code","message","field"?}}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    field: Option<String>,
    retry_after_seconds: Option<u32>,
    allow: Option<String>,
    wants_token: bool,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            field: None,
            retry_after_seconds: None,
            allow: None,
            wants_token: false,
        }
    }

    fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after_seconds: Some(seconds), ..self }
    }

    pub(crate) fn invalid_json(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_json", message)
    }

    pub(crate) fn too_large(limit_bytes: usize) -> Self {
        let message = format!("the body is longer than {limit_bytes} bytes: send less in one request");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    pub(crate) fn unsupported_encoding(encoding: &str) -> Self {
        let message = format!("a body encoded as {encoding} is not read: send it as it is, without Content-Encoding");
        let field = Some("Content-Encoding".to_owned());
        Self { field, ..Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding", message) }
    }

    pub(crate) fn too_slow(limit_seconds: u64) -> Self {
        let message = format!("the body did not arrive within {limit_seconds} s: send it without pausing");
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
    }

    pub(crate) fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path: the API stands under /v1")
    }

    pub(crate) fn no_such_schedule() -> Self {
        CallError::NotFound.into()
    }

    pub(crate) fn no_such_occurrence() -> Self {
        CallError::NoOccurrence.into()
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "there is no token that is known: send `Authorization: Bearer TOKEN` with one of the tokens file";
        Self { wants_token: true, ..Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message) }
    }

    pub(crate) fn forbidden(role: &Role) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", format!("the role {role} may not do this: use another token"))
    }

    pub(crate) fn method_not_allowed(allow: &str) -> Self {
        let message = format!("this path does not know the method: use {allow}");
        Self {
            allow: Some(allow.to_owned()),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
        }
    }

    pub(crate) fn cross_origin() -> Self {
        let message = "the request comes from a web page, or names a host that is not this machine: call the API from a program, by \
                       127.0.0.1 or localhost";
        Self::new(StatusCode::FORBIDDEN, "cross_origin", message)
    }

    pub(crate) fn internal() -> Self {
        let message = "the engine failed in a way that it does not know: see the server's log";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let field = (!refusal.field.is_empty()).then_some(refusal.field);
        Self { field, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, refusal.code.as_str(), refusal.message) }
    }
}

impl From<CallError> for ApiError {
    fn from(error: CallError) -> Self {
        let message = error.to_string();
        let unavailable = |code| Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message.clone());
        match error {
            CallError::Refused(refusal) => refusal.into(),
            CallError::NotFound => Self::new(StatusCode::NOT_FOUND, "not_found", message),
            CallError::ForeignTenant => Self::new(StatusCode::NOT_FOUND, "not_found", message),
            // Not 404: that would settle an entry which is another worker's.
            CallError::ForeignQueue => Self::new(StatusCode::FORBIDDEN, "forbidden", message),
            CallError::NoOccurrence => Self::new(StatusCode::NOT_FOUND, "not_found", message),
            CallError::Archived => Self::new(StatusCode::GONE, "archived", message),
            CallError::Canceled => Self::new(StatusCode::CONFLICT, "canceled", message),
            CallError::VersionMismatch { .. } => {
                Self::new(StatusCode::PRECONDITION_FAILED, "version_mismatch", message)
            }
            CallError::IdempotencyConflict { .. } => Self::new(StatusCode::CONFLICT, "idempotency_conflict", message),
            CallError::QuotaSchedules { .. } => Self::new(StatusCode::TOO_MANY_REQUESTS, "quota_schedules", message),
            CallError::NotClaimed(ClaimRefusal::NotHeard) => unavailable("not_heard").retry_after(1),
            CallError::NotClaimed(ClaimRefusal::NotFound) => Self::new(StatusCode::NOT_FOUND, "not_found", message),
            CallError::NotClaimed(refusal) => Self::new(StatusCode::CONFLICT, refusal.as_str(), message),
            CallError::Run(error) => error.into(),
            CallError::WrongState { needed, .. } => {
                let code = if needed == State::Held { "not_held" } else { "not_dead" };
                Self::new(StatusCode::CONFLICT, code, message)
            }
            CallError::Overloaded => unavailable("overloaded").retry_after(1),
            CallError::DiskFull => unavailable("disk_full").retry_after(30),
            CallError::Poisoned(_) => unavailable("poisoned"),
            CallError::NoLocalQueue => Self::new(StatusCode::CONFLICT, "no_local_queue", message),
            CallError::Fenced(_) => unavailable("fenced").retry_after(5),
            CallError::Stopping => unavailable("stopping").retry_after(5),
        }
    }
}

impl From<RunError> for ApiError {
    fn from(error: RunError) -> Self {
        let message = error.to_string();
        match error {
            RunError::StaleLease => Self::new(StatusCode::CONFLICT, "stale_lease", message),
            RunError::NotAskedToStop => Self::new(StatusCode::CONFLICT, "not_asked_to_stop", message),
            RunError::ResultTooLong => Refusal::new(RefusalCode::Invalid, "result_ref", message).into(),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status.as_u16(), self.code, self.message)
    }
}

impl ApiError {
    #[cfg(test)]
    pub(crate) const fn code(&self) -> &'static str {
        self.code
    }

    /// Whether a client can act on it: a code that is documented, a sentence of one line, and a field unless the whole
    /// body is wrong.
    pub(crate) fn is_told(&self) -> bool {
        let is_known = CODES.contains(&(self.code, self.status.as_u16()));
        let is_one_line = !self.message.is_empty() && !self.message.contains(['\n', '\r', '\0']);
        let is_placed = self.field.as_ref().is_none_or(|field| !field.is_empty());
        is_known && is_one_line && is_placed
    }

    /// `{"error":{...}}`
    pub(crate) fn body(&self) -> ErrorBody<'_> {
        ErrorBody { error: self.fields() }
    }

    /// `{code, message, field?}`
    pub(crate) fn fields(&self) -> ErrorFields<'_> {
        ErrorFields { code: self.code, message: &self.message, field: self.field.as_deref() }
    }
}

impl Serialize for ApiError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.body().serialize(serializer)
    }
}

#[derive(Serialize)]
pub(crate) struct ErrorBody<'a> {
    error: ErrorFields<'a>,
}

#[derive(Serialize)]
pub(crate) struct ErrorFields<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status);
        if let Some(seconds) = self.retry_after_seconds {
            response.insert_header((header::RETRY_AFTER, seconds.to_string()));
        }
        if let Some(methods) = &self.allow {
            response.insert_header((header::ALLOW, methods.as_str()));
        }
        if self.wants_token {
            response.insert_header((header::WWW_AUTHENTICATE, "Bearer realm=\"countwheel\""));
        }
        response.json(self.body())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RefusalCode;

    #[test]
    fn every_failure_of_a_call_has_a_status_a_code_and_a_hint_when_to_retry() {
        let refusal = Refusal { code: RefusalCode::InvalidCron, field: "rule.cron".into(), message: "minute".into() };
        let told = |error: CallError| {
            let error = ApiError::from(error);
            assert!(CODES.contains(&(error.code, error.status.as_u16())), "{error} is not among the codes");
            (error.status.as_u16(), error.code, error.retry_after_seconds, error.field)
        };
        assert_eq!(told(CallError::Refused(refusal)), (422, "invalid_cron", None, Some("rule.cron".to_owned())));
        assert_eq!(told(CallError::QuotaSchedules { limit: 7 }), (429, "quota_schedules", None, None));
        assert_eq!(told(CallError::NotFound), (404, "not_found", None, None));
        assert_eq!(told(CallError::Overloaded), (503, "overloaded", Some(1), None));
        assert_eq!(told(CallError::NoLocalQueue), (409, "no_local_queue", None, None));
        assert_eq!(told(CallError::DiskFull), (503, "disk_full", Some(30), None));
        assert_eq!(told(CallError::Poisoned("fsync: EIO".into())), (503, "poisoned", None, None));
        assert_eq!(told(CallError::Stopping), (503, "stopping", Some(5), None));
    }

    #[test]
    fn the_table_in_the_docs_is_the_one_in_the_code() {
        let docs = include_str!("../../../docs/OPERATIONS.md");
        let (_, behind) = docs.split_once("<!-- codes").expect("the table is marked");
        let (table, _) = behind.split_once("<!-- end -->").expect("its end is marked");
        let rows = table.lines().filter(|line| line.starts_with("| `")).map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let code = cells.next().expect("a code").trim_matches('`');
            (code, cells.next().and_then(|status| status.parse().ok()).expect("a status"))
        });
        assert_eq!(rows.collect::<Vec<(&str, u16)>>(), CODES);
    }

    #[test]
    fn every_word_of_a_refusal_is_a_code() {
        use RefusalCode as R;
        let all = [
            R::InvalidCron,
            R::UnknownZone,
            R::NeverFires,
            R::InThePast,
            R::WindowTooLong,
            R::RestatePolicies,
            R::ReviewOwnerRequired,
            R::MisfireRequired,
            R::TooMany,
            R::Invalid,
        ];
        for code in all {
            assert!(ApiError::from(Refusal { code, field: "f".into(), message: "m".into() }).is_told(), "{code:?}");
        }
    }

    #[test]
    fn a_refusal_of_the_whole_body_names_no_field() {
        let refusal = Refusal { code: RefusalCode::Invalid, field: String::new(), message: "m".into() };
        assert_eq!(ApiError::from(refusal).field, None);
    }
}
