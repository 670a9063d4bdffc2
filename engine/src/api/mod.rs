//! The HTTP server: reads requests strictly, asks the engine, renders its answers.
//!
//! A handler parses, calls the handle and renders, nothing else: what is right is decided by the engine, and this room
//! sees only what any embedder sees. It promises that nothing a client sends is ignored in silence: a field that is
//! not known, not well formed or not built yet is refused by its path.
//!
//! It is not: TLS (that lies under it), or a place for policies. Who may call is checked before anything else, against
//! a file of tokens; without one the server binds loopback only.

pub(crate) mod admit;
pub(crate) mod auth;
pub(crate) mod calls;
pub(crate) mod duration;
pub(crate) mod errors;
pub(crate) mod fields;
pub(crate) mod handlers;
pub(crate) mod import;
pub(crate) mod json;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod render;
pub(crate) mod request;
pub(crate) mod routes;
pub(crate) mod rule_reader;
pub(crate) mod run_handlers;
pub(crate) mod run_reader;
pub(crate) mod run_render;
pub(crate) mod schemas;
use std::sync::Arc;

use crate::kernel::{
    calendar::ZoneSet,
    resolve::{resolve, resolve_changes},
    schedule::{Rule, Spec},
    time::UnixMs,
};

pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod shape;
pub(crate) mod spec_reader;
pub(crate) mod words;

/// The body of the fuzz target: a byte that chooses the call, then any bytes as what it takes. What is understood goes
/// on to the engine's own checks.
pub(crate) fn fuzz_body(bytes: &[u8], zones: &Arc<ZoneSet>) {
    const NOW: UnixMs = UnixMs(1_793_511_000_000);
    let Some((&choice, body)) = bytes.split_first() else { return };
    let refused = request::parse(body).and_then(|node| {
        Ok(match choice % 13 {
            0 => spec_reader::new_schedule(node, None).and_then(|new| resolve(&new, NOW, zones).map(drop)),
            1 => spec_reader::patch(node).and_then(|patch| {
                let stands = Spec::new("acme", Rule::At(NOW));
                resolve_changes(&stands, &patch.changes, NOW, zones).map(drop)
            }),
            2 => spec_reader::import_line(node, Some("acme")).map(drop),
            3 => spec_reader::backfill(node).map(drop),
            4 => settings::tenant(node).and_then(|set| set.check()),
            5 => settings::queue(node).and_then(|set| set.check()),
            6 => run_reader::claim(node).map(drop),
            7 => run_reader::claim_one(node).map(drop),
            8 => run_reader::beats(node).map(drop),
            9 => run_reader::completions(node).map(drop),
            10 => run_reader::failures(node).map(drop),
            11 => run_reader::decided(node).map(drop),
            _ => spec_reader::preview(node).map(drop),
        }?)
    });
    let Err(error) = refused else { return };
    let shown = serde_json::to_string(&error.body()).expect("strings are written to memory");
    assert!(error.is_told(), "{shown}");
    assert!(shown.len() < 8 * 1024, "a client's text is cut in messages: {shown}");
}
