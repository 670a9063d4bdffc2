//! What a shard can be asked, and where its answer goes.

use std::sync::Arc;

use actix::Message;
use tokio::sync::oneshot;

use super::{creations::Created, run_ask::RunAsk};
use crate::{
    error::CallError,
    kernel::{
        id::OccurrenceId,
        occurrence::State,
        schedule::{Schedule, Spec},
        shard::{
            Backfilled, Creation, HistoryPage, ListingFilter, ListingPage, LookedUp, Pending, Receipted, Target,
            Triggered,
        },
        tenant::{QueueSettings, Revised, TenantSettings},
        time::UnixMs,
    },
};

/// Where an answer goes.
pub(crate) type ReplyTo<T> = oneshot::Sender<Result<T, CallError>>;

/// What a shard can be asked.
pub(crate) enum Ask {
    Create {
        creation: Box<Creation>,
        reply: ReplyTo<Schedule>,
    },
    CreateMany {
        creations: Arc<[Creation]>,
        reply: ReplyTo<Vec<Created>>,
    },
    Update {
        target: Target,
        spec: Box<Spec>,
        version: u32,
        pending: Pending,
        reply: ReplyTo<Receipted>,
    },
    Pause {
        target: Target,
        reply: ReplyTo<Receipted>,
    },
    Resume {
        target: Target,
        reply: ReplyTo<Receipted>,
    },
    Cancel {
        target: Target,
        reply: ReplyTo<Receipted>,
    },
    Trigger {
        target: Target,
        discriminator: Vec<u8>,
        is_keyed: bool,
        reply: ReplyTo<Triggered>,
    },
    Backfill {
        target: Target,
        window: (UnixMs, UnixMs),
        discriminator: Vec<u8>,
        is_keyed: bool,
        reply: ReplyTo<Backfilled>,
    },
    Read {
        target: Target,
        reply: ReplyTo<Schedule>,
    },
    List {
        filter: ListingFilter,
        from: u32,
        limit: usize,
        reply: ReplyTo<ListingPage>,
    },
    History {
        query: HistoryQuery,
        reply: ReplyTo<HistoryPage>,
    },
    Occurrence {
        id: OccurrenceId,
        reply: ReplyTo<LookedUp>,
    },
    Run(RunAsk),
    SetTenant {
        name: Arc<str>,
        set: Revised<TenantSettings>,
        reply: ReplyTo<()>,
    },
    SetQueue {
        name: Arc<str>,
        set: Revised<QueueSettings>,
        reply: ReplyTo<()>,
    },
    Stop {
        reply: oneshot::Sender<Result<(), String>>,
    },
}

/// Answers go through `reply`, when the gate lets them.
impl Message for Ask {
    type Result = ();
}

/// Which part of a history is asked for.
#[derive(Clone, Debug)]
pub(crate) struct HistoryQuery {
    pub(crate) target: Target,
    pub(crate) state: Option<State>,
    pub(crate) bounds: (UnixMs, UnixMs),
    pub(crate) after: Option<(UnixMs, OccurrenceId)>,
    pub(crate) limit: usize,
}
