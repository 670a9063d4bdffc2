//! What a worker asks the engine over HTTP, and how each answer is to be taken.
//!
//! Only an answer that is surely the engine's settles anything: whatever else comes back (another server's 404, a
//! proxy's error page, a cut connection) counts as no answer.

use std::{io, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use ureq::{
    Agent,
    http::{Method, Request, Uri},
};

use super::{
    config::{ConsumerConfig, ConsumerError},
    entry::Told,
    run::Failure,
};
use crate::{
    http_trust,
    kernel::{id::OccurrenceId, time::UnixMs},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take that neither a lease nor a heartbeat depends upon.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read: a thousand heartbeats' and then some.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// The engine, and as whom to speak to it.
pub(super) struct EngineClient {
    agent: Agent,
    base: String,
    token: Option<String>,
    lease: Duration,
}

/// What came back instead of an answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoAnswer {
    /// It may help to ask again.
    #[error("{0}")]
    Away(String),
    /// The engine, or whoever answers there, will say the same again.
    #[error("{0}")]
    Unusable(String),
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Granted(Granted),
    /// Not to be run by us: the entry is settled. The engine's word for why.
    Settled(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Granted {
    pub(super) attempt: u32,
    pub(super) lease_token: String,
    deadline: Option<String>,
}

impl Granted {
    pub(super) fn deadline(&self) -> Option<UnixMs> {
        UnixMs::parse_rfc3339(self.deadline.as_deref()?)
    }
}

/// How an attempt ended, for the engine.
#[derive(Clone, Debug)]
pub(super) enum End<'a> {
    Succeeded { result_ref: Option<&'a str> },
    Failed(&'a Failure),
}

/// What a heartbeat brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    Extended {
        cancel_requested: bool,
    },
    /// Another token counts, or the lease is over.
    Stale,
    /// Nothing that is understood.
    Unknown,
}

/// Which lease.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Holding {
    pub(super) occurrence_id: String,
    pub(super) lease_token: String,
    pub(super) lease_ms: u64,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorText,
}

#[derive(Deserialize)]
struct ErrorText {
    code: String,
    message: String,
}

#[derive(Deserialize)]
struct HealthBody {
    shards: u16,
}

#[derive(Deserialize)]
struct BeatsBody {
    results: Vec<BeatBody>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum BeatBody {
    Extended { cancel_requested: bool },
    Refused { error: ErrorText },
    Odd(serde::de::IgnoredAny),
}

struct Reply {
    status: u16,
    text: String,
}

impl EngineClient {
    pub(super) fn new(config: &ConsumerConfig) -> Result<Self, ConsumerError> {
        let refuse = |setting, why: String| ConsumerError::Setting { setting, why };
        let url = |why: &str| refuse("engine_url", format!("{why}: give one such as http://127.0.0.1:7171"));
        let uri: Uri = config.engine_url.parse().map_err(|_| url("is no URL"))?;
        let authority = uri.authority().ok_or_else(|| url("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(url("holds a user, which would be ignored"));
        }
        if let Some(token) = &config.token
            && (token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return Err(refuse("token", "is empty or has blanks in it: give it as it was printed".to_owned()));
        }
        let builder = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .max_idle_connections_per_host(config.handlers + 1)
            .max_idle_connections(config.handlers + 1)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .user_agent(concat!("countwheel/", env!("CARGO_PKG_VERSION")));
        let builder = match uri.scheme_str() {
            Some("http") => builder,
            Some("https") => {
                http_trust::trusting(builder, config.ca.as_deref()).map_err(|error| refuse("ca", error.to_string()))?
            }
            _ => return Err(url("is neither http nor https")),
        };
        Ok(Self {
            agent: builder.build().new_agent(),
            base: config.engine_url.trim_end_matches('/').to_owned(),
            token: config.token.clone(),
            lease: config.lease,
        })
    }

    /// How many shards the engine has: it never changes for a data directory.
    pub(super) fn shards(&self) -> Result<u16, NoAnswer> {
        let reply = self.exchange(Method::GET, "/healthz", None, ANSWER_TIMEOUT)?;
        // An engine that is not well still says how many it has.
        let body: HealthBody = self.read(&reply)?;
        Ok(body.shards)
    }

    /// Asks to run what an entry tells of.
    pub(super) fn claim(&self, told: &Told, worker: &str) -> Result<Claim, NoAnswer> {
        #[derive(Serialize)]
        struct Body<'a> {
            worker: &'a str,
            lease_ms: u64,
            schedule_id: String,
        }
        let lease_ms = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let body = Body { worker, lease_ms, schedule_id: told.schedule_id.to_string() };
        let path = format!("/v1/occurrences/{}/claim", told.occurrence_id);
        // An answer that comes when half of the lease is over would be of little use.
        let limit = (self.lease / 2).clamp(Duration::from_secs(1), 3 * ANSWER_TIMEOUT);
        let reply = self.post(&path, &body, limit)?;
        match reply.status {
            200 => Ok(Claim::Granted(self.read(&reply)?)),
            404 | 409 => self.settled(&reply).map(Claim::Settled),
            _ => Err(self.refusal(&reply)),
        }
    }

    /// Tells that these are still being worked on; an answer for each, in order.
    pub(super) fn heartbeat(&self, runs: &[Holding]) -> Result<Vec<Beat>, NoAnswer> {
        #[derive(Serialize)]
        struct Body<'a> {
            runs: &'a [Holding],
        }
        let limit = (self.lease / 3).clamp(Duration::from_millis(500), ANSWER_TIMEOUT);
        let reply = self.post("/v1/runs/heartbeat", &Body { runs }, limit)?;
        if reply.status != 200 {
            return Err(self.refusal(&reply));
        }
        let body: BeatsBody = self.read(&reply)?;
        let beat = |beat: BeatBody| match beat {
            BeatBody::Extended { cancel_requested } => Beat::Extended { cancel_requested },
            BeatBody::Refused { error } if matches!(&*error.code, "stale_lease" | "not_found") => Beat::Stale,
            BeatBody::Refused { .. } | BeatBody::Odd(_) => Beat::Unknown,
        };
        Ok(body.results.into_iter().map(beat).collect())
    }

    /// Tells how an attempt ended; whether its lease still counted.
    pub(super) fn tell(&self, occurrence: OccurrenceId, token: &str, end: &End<'_>) -> Result<bool, NoAnswer> {
        #[derive(Serialize)]
        struct Body<'a> {
            occurrence_id: String,
            lease_token: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            result_ref: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            class: Option<&'static str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'a str>,
        }
        let mut body = Body {
            occurrence_id: occurrence.to_string(),
            lease_token: token,
            result_ref: None,
            class: None,
            message: None,
        };
        let path = match end {
            End::Succeeded { result_ref } => {
                body.result_ref = *result_ref;
                "/v1/runs/complete"
            }
            End::Failed(failure) => {
                (body.class, body.message) = (Some(failure.class.as_str()), Some(failure.message.as_str()));
                "/v1/runs/fail"
            }
        };
        let reply = self.post(path, &body, ANSWER_TIMEOUT)?;
        match reply.status {
            200 => Ok(true),
            404 | 409 => self.settled(&reply).map(|_| false),
            _ => Err(self.refusal(&reply)),
        }
    }

    /// The engine's code for a refusal that settles what was asked, if it is the engine that refuses.
    fn settled(&self, reply: &Reply) -> Result<String, NoAnswer> {
        match serde_json::from_str::<ErrorBody>(&reply.text) {
            // A call that the engine does not know says nothing about an occurrence.
            Ok(ErrorBody { error }) if !error.message.contains("at this path") => Ok(error.code),
            _ => Err(NoAnswer::Unusable(format!(
                "{} answered {} without the engine's reason: is this a countwheel server that knows claims",
                self.base, reply.status
            ))),
        }
    }

    fn refusal(&self, reply: &Reply) -> NoAnswer {
        let said = serde_json::from_str::<ErrorBody>(&reply.text).ok();
        let said = said.map_or_else(|| "without a reason".to_owned(), |body| body.error.message);
        let said = format!("{} answered {}: {said}", self.base, reply.status);
        if matches!(reply.status, 408 | 429 | 500..=599) { NoAnswer::Away(said) } else { NoAnswer::Unusable(said) }
    }

    fn read<T: DeserializeOwned>(&self, reply: &Reply) -> Result<T, NoAnswer> {
        serde_json::from_str(&reply.text).map_err(|_| {
            let (base, status) = (&self.base, reply.status);
            NoAnswer::Away(format!("{base} answered {status} with something that is not understood"))
        })
    }

    fn post(&self, path: &str, body: &impl Serialize, limit: Duration) -> Result<Reply, NoAnswer> {
        let body = serde_json::to_vec(body).expect("plain fields become JSON");
        self.exchange(Method::POST, path, Some(&body), limit)
    }

    fn exchange(&self, method: Method, path: &str, body: Option<&[u8]>, limit: Duration) -> Result<Reply, NoAnswer> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let unusable = |error: ureq::http::Error| NoAnswer::Unusable(format!("the request cannot be sent: {error}"));
        let answer = match body {
            Some(body) => {
                let request = request.header("Content-Type", "application/json").body(body).map_err(unusable)?;
                self.agent.run(self.agent.configure_request(request).timeout_global(Some(limit)).build())
            }
            None => {
                let request = request.body(()).map_err(unusable)?;
                self.agent.run(self.agent.configure_request(request).timeout_global(Some(limit)).build())
            }
        };
        let away = |error| NoAnswer::Away(format!("{}: {}", self.base, why(&error)));
        let answer = answer.map_err(away)?;
        let status = answer.status().as_u16();
        let text = answer.into_body().into_with_config().limit(MAX_ANSWER_BYTES).read_to_string().map_err(away)?;
        Ok(Reply { status, text })
    }
}

fn why(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            "nothing listens there: start the engine or correct engine_url".to_owned()
        }
        ureq::Error::Timeout(_) => "no answer in time: is the engine overloaded".to_owned(),
        error => error.to_string(),
    }
}
