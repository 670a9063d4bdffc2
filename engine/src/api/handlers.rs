//! What each call does: it parses, asks the engine and renders.

use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, http::header, web};

use super::{
    admit::{Caller, Guarded},
    errors::ApiError,
    fields::{invalid, quoted},
    metrics, openapi,
    render::{
        BackfilledBody, DescribedBody, ForecastBody, HealthBody, HistoryBody, OccurrenceBody, PageBody, ReadinessBody,
        ReceiptedBody, ScheduleBody, TriggeredBody,
    },
    request::{JsonBody, NoBody, Query, idempotency_key, if_match},
    settings::{self, BacklogBody, QueueBody, TenantBody},
    spec_reader, words,
};
use crate::{
    engine::{Described, HistoryFilter, Made, Receipted, Update},
    kernel::{
        id::{OccurrenceId, ScheduleId},
        shard::ListingFilter,
    },
};

pub(super) type Answer = Result<HttpResponse, ApiError>;

pub(super) async fn create(caller: Caller, request: HttpRequest, body: JsonBody) -> Answer {
    let key = idempotency_key(request.headers())?;
    let new = spec_reader::new_schedule(body.0, caller.tenant())?;
    let Some(key) = key else { return Ok(created(&caller.engine.create(new).await?)) };
    let Made { schedule, is_new } = caller.engine.create_keyed(key, new).await?;
    let described = caller.engine.describe(schedule);
    Ok(if is_new { created(&described) } else { HttpResponse::Ok().json(DescribedBody::from(&described)) })
}

fn created(made: &Described) -> HttpResponse {
    let location = format!("/v1/schedules/{}", made.schedule.id);
    HttpResponse::Created().insert_header((header::LOCATION, location)).json(DescribedBody::from(made))
}

pub(super) async fn list(caller: Caller, query: Query) -> Answer {
    let filter = ListingFilter {
        tenant: query.name("tenant")?,
        queue: query.name("queue")?,
        state: query.word("state", words::SCHEDULE_STATE)?,
    };
    let (limit, cursor) = query.page()?;
    let page = caller.engine.schedules(filter, limit, cursor).await?;
    Ok(HttpResponse::Ok().json(PageBody::<ScheduleBody<'_>>::from(&page)))
}

pub(super) async fn show(caller: Caller, id: web::Path<String>) -> Answer {
    let described = caller.engine.schedule(schedule_id(&id)?).await?;
    Ok(HttpResponse::Ok().json(DescribedBody::from(&described)))
}

pub(super) async fn update(
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
    query: Query,
    body: JsonBody,
) -> Answer {
    let id = schedule_id(&id)?;
    let if_version = if_match(request.headers())?;
    let pending = query.word("pending", words::PENDING)?.unwrap_or_default();
    let patch = spec_reader::patch(body.0)?;
    if let Some(tenant) = patch.tenant {
        let stands = caller.engine.schedule(id).await?.schedule.spec.tenant;
        if tenant != stands {
            let message = format!("{} is not the schedule's, which cannot change: leave it out", quoted(&tenant));
            return Err(invalid("tenant", message).into());
        }
    }
    receipted(caller.engine.update(id, patch.changes, Update { if_version, pending }).await?)
}

pub(super) async fn pause(caller: Caller, id: web::Path<String>, _: NoBody) -> Answer {
    receipted(caller.engine.pause(schedule_id(&id)?).await?)
}

pub(super) async fn resume(caller: Caller, id: web::Path<String>, _: NoBody) -> Answer {
    receipted(caller.engine.resume(schedule_id(&id)?).await?)
}

pub(super) async fn cancel(caller: Caller, id: web::Path<String>, _: NoBody) -> Answer {
    receipted(caller.engine.cancel(schedule_id(&id)?).await?)
}

#[allow(clippy::needless_pass_by_value, reason = "it is the end of the call")]
fn receipted(changed: Receipted) -> Answer {
    Ok(HttpResponse::Ok().json(ReceiptedBody::new(&changed.schedule, &changed.receipt)))
}

pub(super) async fn trigger(caller: Caller, request: HttpRequest, id: web::Path<String>, _: NoBody) -> Answer {
    let triggered = caller.engine.trigger(schedule_id(&id)?, idempotency_key(request.headers())?).await?;
    Ok(made_or_found(triggered.is_new).json(TriggeredBody::from(&triggered)))
}

pub(super) async fn backfill(caller: Caller, request: HttpRequest, id: web::Path<String>, body: JsonBody) -> Answer {
    let id = schedule_id(&id)?;
    let window = spec_reader::backfill(body.0)?;
    let backfilled = caller.engine.backfill(id, window, idempotency_key(request.headers())?).await?;
    Ok(made_or_found(backfilled.is_new).json(BackfilledBody::from(&backfilled)))
}

fn made_or_found(is_new: bool) -> HttpResponseBuilder {
    if is_new { HttpResponse::Created() } else { HttpResponse::Ok() }
}

pub(super) async fn history(caller: Caller, id: web::Path<String>, query: Query) -> Answer {
    let filter = HistoryFilter {
        state: query.word("state", words::OCCURRENCE_STATE)?,
        from: query.instant("from")?,
        to: query.instant("to")?,
    };
    let (limit, cursor) = query.page()?;
    let page = caller.engine.occurrences(schedule_id(&id)?, filter, limit, cursor).await?;
    Ok(HttpResponse::Ok().json(PageBody::<HistoryBody<'_>>::from(&page)))
}

pub(super) async fn occurrence(caller: Caller, id: web::Path<String>) -> Answer {
    Ok(HttpResponse::Ok().json(OccurrenceBody::from(&caller.engine.occurrence(occurrence_id(&id)?).await?)))
}

pub(super) async fn tenant(caller: Caller, name: web::Path<String>) -> Answer {
    Ok(HttpResponse::Ok().json(TenantBody::from(caller.engine.tenant(&name)?)))
}

pub(super) async fn set_tenant(caller: Caller, name: web::Path<String>, body: JsonBody) -> Answer {
    let set = caller.engine.set_tenant(&name, settings::tenant(body.0)?).await?;
    Ok(HttpResponse::Ok().json(TenantBody::from(set)))
}

pub(super) async fn queue(caller: Caller, name: web::Path<String>) -> Answer {
    Ok(HttpResponse::Ok().json(QueueBody::from(caller.engine.queue(&name)?)))
}

pub(super) async fn set_queue(caller: Caller, name: web::Path<String>, body: JsonBody) -> Answer {
    let set = caller.engine.set_queue(&name, settings::queue(body.0)?).await?;
    Ok(HttpResponse::Ok().json(QueueBody::from(set)))
}

pub(super) async fn backlog(caller: Caller) -> Answer {
    Ok(HttpResponse::Ok().json(BacklogBody::from(&caller.engine.backlog()?)))
}

pub(super) async fn preview(caller: Caller, body: JsonBody) -> Answer {
    let asked = spec_reader::preview(body.0)?;
    let engine = caller.engine;
    // Ten thousand instants are milliseconds of work: not on the thread that serves everybody.
    let forecast = web::block(move || engine.forecast(&asked.rule, asked.bounds, asked.from, asked.count));
    let forecast = forecast.await.map_err(|_| ApiError::internal())??;
    Ok(HttpResponse::Ok().json(ForecastBody::from(&forecast)))
}

pub(super) async fn document() -> HttpResponse {
    HttpResponse::Ok().json(openapi::document())
}

pub(super) async fn healthz(guarded: web::Data<Guarded>) -> HttpResponse {
    let health = guarded.engine.health();
    status(health.live).json(HealthBody::from(&health))
}

pub(super) async fn readyz(guarded: web::Data<Guarded>) -> HttpResponse {
    let readiness = guarded.engine.readiness();
    status(readiness.ready).json(ReadinessBody::from(&readiness))
}

pub(super) async fn show_metrics(caller: Caller) -> HttpResponse {
    let page = metrics::render(&caller.engine.metrics());
    HttpResponse::Ok().content_type(metrics::CONTENT_TYPE).body(page)
}

fn status(fine: bool) -> HttpResponseBuilder {
    if fine { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() }
}

/// An id that does not read names nothing: the answer is the same as for one that is not there.
fn schedule_id(text: &str) -> Result<ScheduleId, ApiError> {
    text.parse().map_err(|_| ApiError::no_such_schedule())
}

/// See [`schedule_id`].
pub(super) fn occurrence_id(text: &str) -> Result<OccurrenceId, ApiError> {
    text.parse().map_err(|_| ApiError::no_such_occurrence())
}
