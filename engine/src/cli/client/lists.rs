//! Listings: page after page until the limit, the end, or the reader's patience.

use clap::Args;
use serde_json::Value;
use ureq::http::Method;

use super::{
    error::ClientError,
    http::{Ask, Client},
    local::Clocks,
    print,
    schedule::Id,
    show,
};
use crate::cli::report::note;

/// The most that the server puts on a page.
const PAGE_ITEMS: u64 = 500;

/// So many are shown where nothing is said.
const DEFAULT_LIMIT: u64 = 100;

/// How much of a listing is wanted.
#[derive(Args, Clone)]
pub(super) struct Extent {
    /// How many to show [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Show all of them
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Go on where a listing stopped
    #[arg(long)]
    cursor: Option<String>,
}

impl Extent {
    /// Whether anything was said of it.
    pub(super) const fn is_given(&self) -> bool {
        self.limit.is_some() || self.all || self.cursor.is_some()
    }
}

/// Options of `schedule list`.
#[derive(Args)]
pub(super) struct ScheduleListArgs {
    /// Only this tenant's
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// Only those of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only those in this state (active, paused, completed, canceled)
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    extent: Extent,
}

/// Options of `schedule occurrences`.
#[derive(Args)]
pub(super) struct OccurrenceListArgs {
    #[command(flatten)]
    id: Id,
    /// Only those in this state (SCHEDULED, ENQUEUED, RUNNING, ...)
    #[arg(long)]
    state: Option<String>,
    /// From this instant on (RFC 3339)
    #[arg(long, value_name = "T")]
    from: Option<String>,
    /// Before this instant (RFC 3339)
    #[arg(long, value_name = "T")]
    to: Option<String>,
    #[command(flatten)]
    extent: Extent,
}

/// Lists schedules.
pub(super) fn schedules(client: &Client, args: &ScheduleListArgs, json: bool) -> Result<(), ClientError> {
    let ask = Ask::new(Method::GET, "/v1/schedules").query("tenant", args.tenant.as_ref());
    let ask = ask.query("queue", args.queue.as_ref()).query("state", args.state.as_ref());
    let clocks = Clocks::new();
    walk(client, &ask, &args.extent, json, show::SCHEDULES, |item| show::schedule_row(item, &clocks))
}

/// Lists the occurrences of a schedule, with hints in its zone.
pub(super) fn occurrences(client: &Client, args: &OccurrenceListArgs, json: bool) -> Result<(), ClientError> {
    let ask = Ask::new(Method::GET, args.id.path("/occurrences")).query("state", args.state.as_ref());
    let ask = ask.query("from", args.from.as_ref()).query("to", args.to.as_ref());
    let schedule = if json { Value::Null } else { client.ask(&Ask::new(Method::GET, args.id.path("")))? };
    let zone = schedule["schedule"]["rule"]["zone"].as_str();
    let clocks = Clocks::new();
    let row = |item: &Value| show::occurrence_row(item, &clocks, zone);
    walk(client, &ask, &args.extent, json, show::OCCURRENCES, row)
}

/// Shows page after page as it comes: a listing may be longer than memory. With `json` a page is a line.
pub(super) fn walk<const N: usize>(
    client: &Client,
    ask: &Ask,
    extent: &Extent,
    json: bool,
    head: [&str; N],
    row: impl Fn(&Value) -> [String; N],
) -> Result<(), ClientError> {
    let (mut left, mut cursor, mut shown) = (extent.limit.unwrap_or(DEFAULT_LIMIT), extent.cursor.clone(), 0_usize);
    loop {
        let page_items = if extent.all { PAGE_ITEMS } else { left.min(PAGE_ITEMS) };
        let page = client.ask(&ask.clone().query("limit", Some(page_items)).query("cursor", cursor.as_ref()))?;
        let items = page["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if json {
            print(&format!("{page}\n"))?;
        } else if !items.is_empty() {
            print(&show::table((shown == 0).then_some(head), items.iter().map(&row)))?;
        }
        shown += items.len();
        left = left.saturating_sub(items.len() as u64);
        match &cursor {
            None if shown == 0 && !json => return print("none\n"),
            None => return Ok(()),
            Some(cursor) if !extent.all && left == 0 => {
                if !json {
                    note(format_args!("there may be more: --all, or --cursor {cursor}"));
                }
                return Ok(());
            }
            Some(_) => {}
        }
    }
}
