//! Every call of the server, once: its routes are made from this table, who may make it is decided by it, and the
//! document that describes the API is written from it. None of them can know a call that the others do not.

use actix_web::{Route, http::Method, web};

use super::{
    handlers, import,
    request::{IDEMPOTENCY_KEY, IF_MATCH},
    run_handlers, run_reader, settings,
    shape::{Field, Shape},
    spec_reader, words,
};

/// One call.
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) path: &'static str,
    /// What it does, in one line.
    pub(crate) summary: &'static str,
    pub(crate) access: Access,
    pub(crate) query: &'static [Field],
    /// Of the headers that change what a call means, those that it takes.
    pub(crate) head: &'static [Field],
    pub(crate) body: Body,
    /// Status, and the name of the schema of what it answers with.
    pub(crate) answers: &'static [(u16, &'static str)],
    /// Codes of its errors, beside those of every call and of every call with a body.
    pub(crate) errors: &'static [&'static str],
    pub(crate) route: fn() -> Route,
}

/// A method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Verb {
    /// What a request asks for; HEAD asks for what GET does.
    pub(crate) fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET | Method::HEAD => Some(Self::Get),
            Method::POST => Some(Self::Post),
            Method::PUT => Some(Self::Put),
            Method::PATCH => Some(Self::Patch),
            Method::DELETE => Some(Self::Delete),
            _ => None,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// Who may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody, without a token.
    Open,
    /// A tenant, about what is its own; and the admin.
    Tenant,
    /// A worker, about what is in its queue; and the admin.
    Worker,
    /// The admin.
    Admin,
}

/// What a call takes.
pub(crate) enum Body {
    None,
    /// An object with these fields.
    Json(&'static [Field]),
    /// An object with these fields, put onto what stands.
    Merge(&'static [Field]),
    /// Lines of objects with these fields.
    Lines(&'static [Field]),
    /// An object with these fields but the last, or one with the last alone: a list of such objects.
    OneOrMany(&'static [Field]),
}

const LIMIT: Field = Field::new("limit", Shape::Whole(1, 500), "items a page at most; 100");
const CURSOR: Field = Field::new("cursor", Shape::Text, "next_cursor of the page before; empty for the first");
const KEY: Field = Field::new(IDEMPOTENCY_KEY, Shape::Text, "1 to 255 ASCII characters: repeating is safe");
const SCHEDULE_FILTERS: &[Field] = &[
    Field::new("tenant", Shape::Name, "only this tenant's"),
    Field::new("state", Shape::Words(|| words::names(words::SCHEDULE_STATE)), "only in this state"),
    Field::new("queue", Shape::Name, "only of this queue"),
    LIMIT,
    CURSOR,
];
const PILE_FILTERS: &[Field] = &[Field::new("tenant", Shape::Name, "only this tenant's"), LIMIT, CURSOR];
const HISTORY_FILTERS: &[Field] = &[
    Field::new("state", Shape::Words(|| words::names(words::OCCURRENCE_STATE)), "only in this state"),
    Field::new("from", Shape::Instant, "scheduled_for from this on"),
    Field::new("to", Shape::Instant, "scheduled_for before this"),
    LIMIT,
    CURSOR,
];
const UPDATE: &[Field] =
    &[Field::new("pending", Shape::Words(|| words::names(words::PENDING)), "what becomes of what is due; cancel")];
const VERSION: &[Field] = &[Field::new(IF_MATCH, Shape::Text, "only if this version stands, bare or quoted")];

/// Codes of refusals of a schedule's description.
const SPEC_ERRORS: &[&str] = &[
    "not_found",
    "idempotency_conflict",
    "invalid_cron",
    "unknown_zone",
    "never_fires",
    "in_the_past",
    "window_too_long",
    "misfire_required",
    "review_owner_required",
    "quota_schedules",
    "disk_full",
];
const PATCH_ERRORS: &[&str] = &[
    "not_found",
    "canceled",
    "version_mismatch",
    "invalid_cron",
    "unknown_zone",
    "never_fires",
    "window_too_long",
    "misfire_required",
    "review_owner_required",
    "restate_policies",
    "quota_schedules",
    "disk_full",
];

/// Codes of what becomes of a claim of one occurrence: after each but the last two its entry is settled.
const CLAIM_ONE_ERRORS: &[&str] = &[
    "not_found",
    "already_running",
    "waiting",
    "superseded",
    "canceled",
    "paused",
    "skipped_overlap",
    "tenant_concurrency",
    "held",
    "missed",
    "finished",
    "not_heard",
    "disk_full",
];

const QUIET: Call = Call {
    verb: Verb::Get,
    path: "",
    summary: "",
    access: Access::Tenant,
    query: &[],
    head: &[],
    body: Body::None,
    answers: &[],
    errors: &[],
    route: web::route,
};

/// What workers say of runs.
const SPOKEN: Call = Call { verb: Verb::Post, access: Access::Worker, errors: &["stale_lease", "disk_full"], ..QUIET };

/// Every call.
pub(crate) const CALLS: &[Call] = &[
    Call {
        path: "/healthz",
        summary: "Whether the engine lives, and what it is",
        access: Access::Open,
        answers: &[(200, "Health"), (503, "Health")],
        route: || web::to(handlers::healthz),
        ..QUIET
    },
    Call {
        path: "/readyz",
        summary: "Whether the engine can do its work, and why not",
        access: Access::Open,
        answers: &[(200, "Readiness"), (503, "Readiness")],
        route: || web::to(handlers::readyz),
        ..QUIET
    },
    Call {
        path: "/metrics",
        summary: "What the engine counts, for Prometheus",
        access: Access::Admin,
        answers: &[(200, "Metrics")],
        route: || web::to(handlers::show_metrics),
        ..QUIET
    },
    Call {
        path: "/v1/openapi.json",
        summary: "This document",
        answers: &[(200, "Document")],
        route: || web::to(handlers::document),
        ..QUIET
    },
    Call {
        verb: Verb::Post,
        path: "/v1/schedules",
        summary: "Makes a schedule; under a key that stands for the same one, finds it (200)",
        head: &[KEY],
        body: Body::Json(spec_reader::SPEC),
        answers: &[(201, "Described"), (200, "Described")],
        errors: SPEC_ERRORS,
        route: || web::to(handlers::create),
        ..QUIET
    },
    Call {
        path: "/v1/schedules",
        summary: "Lists schedules, each exactly once, in a stable order",
        query: SCHEDULE_FILTERS,
        answers: &[(200, "SchedulePage")],
        errors: &["not_found"],
        route: || web::to(handlers::list),
        ..QUIET
    },
    Call {
        verb: Verb::Post,
        path: "/v1/schedules/import",
        summary: "Makes schedules, a line each, and answers a line each, in order, as they come",
        body: Body::Lines(spec_reader::IMPORT_LINE),
        answers: &[(200, "ImportLine")],
        route: || web::to(import::import),
        ..QUIET
    },
    Call {
        path: "/v1/schedules/{id}",
        summary: "Shows a schedule",
        answers: &[(200, "Described")],
        errors: &["not_found"],
        route: || web::to(handlers::show),
        ..QUIET
    },
    Call {
        verb: Verb::Patch,
        path: "/v1/schedules/{id}",
        summary: "Changes a schedule: what is left out stays, null asks for the default, the rule is replaced whole",
        query: UPDATE,
        head: VERSION,
        body: Body::Merge(spec_reader::PATCH),
        answers: &[(200, "Receipted")],
        errors: PATCH_ERRORS,
        route: || web::to(handlers::update),
        ..QUIET
    },
    Call {
        verb: Verb::Delete,
        path: "/v1/schedules/{id}",
        summary: "Ends a schedule; its history stays",
        answers: &[(200, "Receipted")],
        errors: &["not_found", "disk_full"],
        route: || web::to(handlers::cancel),
        ..QUIET
    },
    Call {
        verb: Verb::Post,
        path: "/v1/schedules/{id}/pause",
        summary: "Nothing of the schedule is decided until it is resumed",
        answers: &[(200, "Receipted")],
        errors: &["not_found", "canceled", "disk_full"],
        route: || web::to(handlers::pause),
        ..QUIET
    },
    Call {
        verb: Verb::Post,
        path: "/v1/schedules/{id}/resume",
        summary: "Goes on with the first instant after now",
        answers: &[(200, "Receipted")],
        errors: &["not_found", "canceled", "disk_full"],
        route: || web::to(handlers::resume),
        ..QUIET
    },
    Call {
        verb: Verb::Post,
        path: "/v1/schedules/{id}/trigger",
        summary: "Makes an occurrence now; the same key within 24 hours finds it (200)",
        head: &[KEY],
        answers: &[(201, "Triggered"), (200, "Triggered")],
        errors: &["not_found", "canceled", "disk_full"],
        route: || web::to(handlers::trigger),
        ..QUIET
    },
    Call {
        verb: Verb::Post,
        path: "/v1/schedules/{id}/backfill",
        summary: "Runs the rule's instants of a past window again; the same key within 24 hours asks once (200)",
        head: &[KEY],
        body: Body::Json(spec_reader::BACKFILL),
        answers: &[(201, "Backfilled"), (200, "Backfilled")],
        errors: &["not_found", "canceled", "too_many", "disk_full"],
        route: || web::to(handlers::backfill),
        ..QUIET
    },
    Call {
        path: "/v1/schedules/{id}/occurrences",
        summary: "A schedule's history, ascending by scheduled_for",
        query: HISTORY_FILTERS,
        answers: &[(200, "HistoryPage")],
        errors: &["not_found"],
        route: || web::to(handlers::history),
        ..QUIET
    },
    Call {
        path: "/v1/occurrences/{id}",
        summary: "Shows an occurrence",
        answers: &[(200, "Occurrence")],
        errors: &["not_found", "archived"],
        route: || web::to(handlers::occurrence),
        ..QUIET
    },
    Call {
        path: "/v1/occurrences/{id}/evidence",
        summary: "What is known of an occurrence in eighteen dimensions, and whether it may run",
        answers: &[(200, "Evidenced")],
        errors: &["not_found", "archived"],
        route: || web::to(run_handlers::evidence),
        ..QUIET
    },
    Call {
        verb: Verb::Post,
        path: "/v1/occurrences/{id}/replay",
        summary: "Gives a DEAD occurrence its attempts anew, under the same id",
        answers: &[(200, "Occurrence")],
        errors: &["not_found", "archived", "not_dead", "canceled", "disk_full"],
        route: || web::to(run_handlers::replay),
        ..QUIET
    },
    Call {
        verb: Verb::Post,
        path: "/v1/occurrences/{id}/resolve",
        summary: "A person's decision about a HELD occurrence",
        body: Body::Json(run_reader::RESOLVE),
        answers: &[(200, "Occurrence")],
        errors: &["not_found", "archived", "not_held", "canceled", "disk_full"],
        route: || web::to(run_handlers::resolve),
        ..QUIET
    },
    Call {
        verb: Verb::Post,
        path: "/v1/occurrences/{id}/claim",
        summary: "Claims what a worker read from a stream; every answer but 5xx and 429 settles the entry",
        access: Access::Worker,
        body: Body::Json(run_reader::CLAIM_ONE),
        answers: &[(200, "Run")],
        errors: CLAIM_ONE_ERRORS,
        route: || web::to(run_handlers::claim_one),
        ..QUIET
    },
    Call {
        verb: Verb::Post,
        path: "/v1/queues/{id}/claim",
        summary: "Claims what a queue of the engine's own has next; waits for it where asked to",
        access: Access::Worker,
        body: Body::Json(run_reader::CLAIM),
        answers: &[(200, "Claimed")],
        errors: &["no_local_queue", "disk_full"],
        route: || web::to(run_handlers::claim),
        ..QUIET
    },
    Call {
        path: "/v1/runs/heartbeat",
        summary: "Extends the lease of a run, or of several: right before a side effect, and in time",
        body: Body::OneOrMany(run_reader::BEATS),
        answers: &[(200, "Beaten")],
        route: || web::to(run_handlers::heartbeat),
        ..SPOKEN
    },
    Call {
        path: "/v1/runs/complete",
        summary: "A run, or several, succeeded; repeated, it is answered again and nothing more is done",
        body: Body::OneOrMany(run_reader::COMPLETIONS),
        answers: &[(200, "Completed")],
        route: || web::to(run_handlers::complete),
        ..SPOKEN
    },
    Call {
        path: "/v1/runs/fail",
        summary: "A run, or several, failed; repeated, it is answered again and nothing more is done",
        body: Body::OneOrMany(run_reader::FAILURES),
        answers: &[(200, "Failed")],
        errors: &["stale_lease", "not_asked_to_stop", "disk_full"],
        route: || web::to(run_handlers::fail),
        ..SPOKEN
    },
    Call {
        path: "/v1/dead",
        summary: "Lists what has failed for good, by tenant, those that died first first",
        query: PILE_FILTERS,
        answers: &[(200, "OccurrencePage")],
        errors: &["not_found"],
        route: || web::to(run_handlers::dead),
        ..QUIET
    },
    Call {
        path: "/v1/held",
        summary: "Lists what waits for a person's decision, by tenant, oldest first",
        query: PILE_FILTERS,
        answers: &[(200, "OccurrencePage")],
        errors: &["not_found"],
        route: || web::to(run_handlers::held),
        ..QUIET
    },
    Call {
        path: "/v1/tenants/{id}",
        summary: "What is set for a tenant; the defaults where nothing was",
        answers: &[(200, "Tenant")],
        errors: &["not_found"],
        route: || web::to(handlers::tenant),
        ..QUIET
    },
    Call {
        verb: Verb::Put,
        path: "/v1/tenants/{id}",
        summary: "Sets all of it for a tenant: what is left out has its default, null is no limit",
        access: Access::Admin,
        body: Body::Json(settings::TENANT),
        answers: &[(200, "Tenant")],
        errors: &["disk_full"],
        route: || web::to(handlers::set_tenant),
        ..QUIET
    },
    Call {
        path: "/v1/queues/{id}",
        summary: "What is set for a queue; the defaults where nothing was",
        access: Access::Admin,
        answers: &[(200, "Queue")],
        route: || web::to(handlers::queue),
        ..QUIET
    },
    Call {
        verb: Verb::Put,
        path: "/v1/queues/{id}",
        summary: "Sets all of it for a queue: what is left out has its default, null is no limit",
        access: Access::Admin,
        body: Body::Json(settings::QUEUE),
        answers: &[(200, "Queue")],
        errors: &["disk_full"],
        route: || web::to(handlers::set_queue),
        ..QUIET
    },
    Call {
        path: "/v1/backlog",
        summary: "What is due and waits, by how long and by lane",
        access: Access::Admin,
        answers: &[(200, "Backlog")],
        route: || web::to(handlers::backlog),
        ..QUIET
    },
    Call {
        verb: Verb::Post,
        path: "/v1/preview",
        summary: "The next instants of a rule; nothing is stored",
        body: Body::Json(spec_reader::PREVIEW),
        answers: &[(200, "Forecast")],
        errors: &["invalid_cron", "unknown_zone"],
        route: || web::to(handlers::preview),
        ..QUIET
    },
];
