//! Which rule stood when, read from the log alone.

use std::collections::BTreeMap;

use super::check::BoundRule;
use crate::kernel::{
    id::ScheduleId,
    record::{Record, SpecBody},
    shard::listing::rule_of,
    time::UnixMs,
};

/// The time for which a version of a schedule stood: the instants in (from, until] are its own.
#[derive(Clone, Debug)]
pub(crate) struct Reign {
    pub(crate) version: u32,
    pub(crate) rule: BoundRule,
    pub(crate) from: UnixMs,
    /// Until the next version or the end; open for what stands.
    pub(crate) until: Option<UnixMs>,
    /// False once it was canceled.
    pub(crate) is_live: bool,
}

impl Reign {
    pub(crate) fn holds(&self, instant: UnixMs) -> bool {
        instant > self.from && self.until.is_none_or(|until| instant <= until)
    }
}

/// The versions of every schedule, in order.
pub(crate) fn reigns(log: &[(u8, Vec<u8>)]) -> BTreeMap<ScheduleId, Vec<Reign>> {
    let mut by_id: BTreeMap<ScheduleId, Vec<Reign>> = BTreeMap::new();
    let mut ids: Vec<ScheduleId> = Vec::new();
    let mut now = UnixMs::MIN;
    for (kind, body) in log {
        match Record::decode(*kind, body).expect("what a shard wrote decodes") {
            Record::Time(time) => now = now.plus(time.forward_ms.cast_signed()),
            Record::ScheduleCreated(created) => {
                let id = ScheduleId(created.id);
                if !by_id.contains_key(&id) {
                    ids.push(id);
                }
                let reign = Reign {
                    version: created.version,
                    rule: rule(&created.spec),
                    from: now,
                    until: None,
                    is_live: true,
                };
                by_id.entry(id).or_default().push(reign);
            }
            Record::Updated(updated) => {
                next_version(&mut by_id, ids[updated.schedule as usize], now).rule = rule(&updated.spec);
            }
            Record::Paused(paused) => drop(next_version(&mut by_id, ids[paused.schedule as usize], now)),
            Record::Resumed(resumed) => drop(next_version(&mut by_id, ids[resumed.schedule as usize], now)),
            Record::Canceled(canceled) => {
                let last = last(&mut by_id, ids[canceled.schedule as usize]);
                last.until = Some(now);
            }
            _ => {}
        }
    }
    by_id
}

fn last(by_id: &mut BTreeMap<ScheduleId, Vec<Reign>>, id: ScheduleId) -> &mut Reign {
    by_id.get_mut(&id).and_then(|reigns| reigns.last_mut()).expect("a schedule that changes was created")
}

fn next_version(by_id: &mut BTreeMap<ScheduleId, Vec<Reign>>, id: ScheduleId, now: UnixMs) -> &mut Reign {
    let before = last(by_id, id);
    before.until = Some(now);
    let next = Reign { version: before.version + 1, from: now, until: None, ..before.clone() };
    let reigns = by_id.get_mut(&id).expect("it was just found");
    reigns.push(next);
    reigns.last_mut().expect("it was just pushed")
}

pub(super) fn rule(spec: &SpecBody) -> BoundRule {
    (rule_of(spec.rule.clone()).0, spec.start_at_ms.map(UnixMs), spec.end_at_ms.map(UnixMs))
}
