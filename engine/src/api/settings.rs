//! How what is set for tenants and queues is read and shown, and what is due and waits. A PUT says all of it: what is
//! left out has its default, and `null` is no limit.

use serde::Serialize;

use super::{
    fields::{Fields, Null},
    json::Node,
    render::Instant,
    shape::{Field, Shape},
};
use crate::{
    engine::{Backlog, BacklogBucket, QueueSettings, Quotas, TenantSettings},
    error::Refusal,
};

const QUOTAS: &[Field] = &[
    Field::new("schedules", Shape::Whole(0, u64::MAX), "active and paused ones"),
    Field::new("trigger_per_second", Shape::Whole(0, 1_000_000), "regular and manual releases a second"),
    Field::new("concurrent_runs", Shape::COUNT, "runs at a time"),
    Field::new("catch_up_per_second", Shape::Whole(0, 1_000_000), "late and backfilled releases a second; 1,000"),
    Field::new("retry_budget", Shape::COUNT, "retries under way at a time"),
];

/// Fields of what is set for a tenant.
pub(crate) const TENANT: &[Field] = &[
    Field::new("weight", Shape::Whole(1, 1_000), "its share where several tenants have something due; 1"),
    Field::new("quotas", Shape::Object(QUOTAS), "its limits; null is no limit"),
];

/// Fields of what is set for a queue.
pub(crate) const QUEUE: &[Field] = &[
    Field::new("tracked", Shape::Bool, "whether workers claim and complete; true"),
    Field::new("catch_up_per_second", Shape::Whole(0, 1_000_000), "late and backfilled releases a second"),
];

/// Reads what is to be set for a tenant.
pub(crate) fn tenant(body: Node) -> Result<TenantSettings, Refusal> {
    let default = TenantSettings::default();
    let mut body = Fields::of(body, "", TENANT, Null::Reset)?;
    let weight = body.count("weight")?.unwrap_or(default.weight);
    let quotas = body.object("quotas", QUOTAS)?.map(quotas).transpose()?;
    Ok(TenantSettings { weight, quotas: quotas.unwrap_or(default.quotas) })
}

fn quotas(mut quotas: Fields) -> Result<Quotas, Refusal> {
    let default = Quotas::default();
    let schedules = quotas.whole("schedules", 0..=u64::MAX)?;
    let mut limit = |name, default: Option<u32>| -> Result<Option<u32>, Refusal> {
        let said = quotas.count(name)?;
        Ok(if quotas.resets(name) { None } else { said.or(default) })
    };
    Ok(Quotas {
        schedules,
        trigger_per_second: limit("trigger_per_second", default.trigger_per_second)?,
        concurrent_runs: limit("concurrent_runs", default.concurrent_runs)?,
        catch_up_per_second: limit("catch_up_per_second", default.catch_up_per_second)?,
        retry_budget: limit("retry_budget", default.retry_budget)?,
    })
}

/// Reads what is to be set for a queue.
pub(crate) fn queue(body: Node) -> Result<QueueSettings, Refusal> {
    let default = QueueSettings::default();
    let mut body = Fields::of(body, "", QUEUE, Null::Reset)?;
    Ok(QueueSettings {
        tracked: body.truth("tracked")?.unwrap_or(default.tracked),
        catch_up_per_second: body.count("catch_up_per_second")?,
    })
}

/// What is set for a tenant.
#[derive(Serialize)]
pub(crate) struct TenantBody {
    weight: u32,
    quotas: QuotasBody,
}

#[derive(Serialize)]
struct QuotasBody {
    schedules: Option<u64>,
    trigger_per_second: Option<u32>,
    concurrent_runs: Option<u32>,
    catch_up_per_second: Option<u32>,
    retry_budget: Option<u32>,
}

impl From<TenantSettings> for TenantBody {
    fn from(settings: TenantSettings) -> Self {
        let Quotas { schedules, trigger_per_second, concurrent_runs, catch_up_per_second, retry_budget } =
            settings.quotas;
        let quotas = QuotasBody { schedules, trigger_per_second, concurrent_runs, catch_up_per_second, retry_budget };
        Self { weight: settings.weight, quotas }
    }
}

/// What is set for a queue.
#[derive(Serialize)]
pub(crate) struct QueueBody {
    tracked: bool,
    catch_up_per_second: Option<u32>,
}

impl From<QueueSettings> for QueueBody {
    fn from(settings: QueueSettings) -> Self {
        Self { tracked: settings.tracked, catch_up_per_second: settings.catch_up_per_second }
    }
}

/// What is due and waits.
#[derive(Serialize)]
pub(crate) struct BacklogBody {
    buckets: Vec<BucketBody>,
    oldest_unprocessed: Option<Instant>,
    estimated_drain_seconds: Option<f64>,
}

#[derive(Serialize)]
struct BucketBody {
    below_ms: Option<i64>,
    strict: u64,
    flexible: u64,
    catchup: u64,
}

impl From<&Backlog> for BacklogBody {
    fn from(backlog: &Backlog) -> Self {
        let bucket = |bucket: &BacklogBucket| BucketBody {
            below_ms: bucket.below_ms,
            strict: bucket.strict,
            flexible: bucket.flexible,
            catchup: bucket.catch_up,
        };
        Self {
            buckets: backlog.buckets.iter().map(bucket).collect(),
            oldest_unprocessed: backlog.oldest_unprocessed.map(Instant),
            estimated_drain_seconds: backlog.drain_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{api::schemas::check::assert_fits, kernel::time::UnixMs};

    fn read_tenant(json: &Value) -> Result<TenantSettings, Refusal> {
        tenant(serde_json::from_str(&json.to_string()).unwrap())
    }

    fn read_queue(json: &Value) -> Result<QueueSettings, Refusal> {
        queue(serde_json::from_str(&json.to_string()).unwrap())
    }

    #[test]
    fn what_is_left_out_has_its_default_and_null_is_no_limit() {
        assert_eq!(read_tenant(&json!({})), Ok(TenantSettings::default()));
        assert_eq!(read_tenant(&json!({"weight": null, "quotas": null})), Ok(TenantSettings::default()));
        let set = read_tenant(&json!({"weight": 3, "quotas": {"schedules": 7, "catch_up_per_second": null}})).unwrap();
        let quotas = Quotas { schedules: Some(7), catch_up_per_second: None, ..Quotas::default() };
        assert_eq!(set, TenantSettings { weight: 3, quotas });
        assert_eq!(read_queue(&json!({})), Ok(QueueSettings::default()));
        let set = read_queue(&json!({"tracked": false, "catch_up_per_second": 9})).unwrap();
        assert_eq!(set, QueueSettings { tracked: false, catch_up_per_second: Some(9) });
    }

    #[test]
    fn what_is_shown_reads_back() {
        let quotas = Quotas { retry_budget: Some(0), catch_up_per_second: None, ..Quotas::default() };
        let settings = TenantSettings { weight: 1_000, quotas };
        let shown = serde_json::to_value(TenantBody::from(settings)).unwrap();
        assert_fits(&shown, "Tenant");
        assert_eq!(read_tenant(&shown), Ok(settings));
        let settings = QueueSettings { tracked: false, catch_up_per_second: Some(1) };
        let shown = serde_json::to_value(QueueBody::from(settings)).unwrap();
        assert_fits(&shown, "Queue");
        assert_eq!(read_queue(&shown), Ok(settings));
    }

    #[test]
    fn what_does_not_belong_is_refused_by_its_path() {
        for (bad, field) in [
            (json!([]), ""),
            (json!({"weight": -1}), "weight"),
            (json!({"weight": "1"}), "weight"),
            (json!({"quotas": 7}), "quotas"),
            (json!({"quotas": {"schedules": -1}}), "quotas.schedules"),
            (json!({"quotas": {"schedules": 1.5}}), "quotas.schedules"),
            (json!({"quotas": {"trigger_per_second": "NaN"}}), "quotas.trigger_per_second"),
            (json!({"quotas": {"retry_budget": 4_294_967_296_u64}}), "quotas.retry_budget"),
            (json!({"quotas": {"schedule": 1}}), "quotas.schedule"),
        ] {
            assert_eq!(read_tenant(&bad).unwrap_err().field, field, "{bad}");
        }
        for (bad, field) in [
            (json!({"tracked": "yes"}), "tracked"),
            (json!({"tracked": 1}), "tracked"),
            (json!({"catch_up_per_second": -1}), "catch_up_per_second"),
            (json!({"weight": 1}), "weight"),
        ] {
            assert_eq!(read_queue(&bad).unwrap_err().field, field, "{bad}");
        }
    }

    #[test]
    fn a_backlog_is_shown_by_age_and_lane() {
        let bucket = BacklogBucket { below_ms: Some(1_000), strict: 1, flexible: 2, catch_up: 3 };
        let backlog = Backlog {
            buckets: vec![bucket, BacklogBucket { below_ms: None, ..bucket }],
            oldest_unprocessed: Some(UnixMs(0)),
            drain_seconds: Some(1.5),
        };
        let shown = serde_json::to_value(BacklogBody::from(&backlog)).unwrap();
        assert_fits(&shown, "Backlog");
        assert_eq!(shown["buckets"][1], json!({"below_ms": null, "strict": 1, "flexible": 2, "catchup": 3}));
        let empty = Backlog { buckets: vec![], oldest_unprocessed: None, drain_seconds: None };
        assert_fits(&serde_json::to_value(BacklogBody::from(&empty)).unwrap(), "Backlog");
    }
}
