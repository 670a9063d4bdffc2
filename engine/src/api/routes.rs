//! What stands at which path: each handler parses, asks the engine and renders.

use std::future::{Ready, ready};

use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, Route, http::header, web};

use super::{
    errors::ApiError,
    fields::invalid,
    metrics,
    render::{
        DescribedBody, ForecastBody, HealthBody, HistoryBody, PageBody, ReadinessBody, ReceiptedBody, ScheduleBody,
    },
    request::{JsonBody, Query},
    spec_reader, words,
};
use crate::{
    engine::{Engine, HistoryFilter},
    kernel::{id::ScheduleId, shard::ListingFilter},
};

type Answer = Result<HttpResponse, ApiError>;

/// Every path of the server.
pub(crate) fn routes(config: &mut web::ServiceConfig) {
    let look = |path: &str| web::resource(path).default_service(only("GET, HEAD"));
    config
        .service(look("/healthz").get(healthz).head(healthz))
        .service(look("/readyz").get(readyz).head(readyz))
        .service(look("/metrics").get(show_metrics).head(show_metrics))
        .service(web::resource("/v1/schedules").get(list).post(create).default_service(only("GET, POST")))
        .service(web::resource("/v1/schedules/{id}").get(show).delete(cancel).default_service(only("GET, DELETE")))
        .service(web::resource("/v1/schedules/{id}/occurrences").get(history).default_service(only("GET")))
        .service(web::resource("/v1/preview").post(preview).default_service(only("POST")));
}

/// What answers where no path of [`routes`] does.
pub(crate) fn nothing_here() -> Ready<Answer> {
    ready(Err(ApiError::no_such_path()))
}

fn only(methods: &'static str) -> Route {
    web::to(move || ready(Answer::Err(ApiError::method_not_allowed(methods))))
}

async fn create(engine: web::Data<Engine>, request: HttpRequest, body: JsonBody) -> Answer {
    Query::of(&request, &[])?;
    if request.headers().contains_key("Idempotency-Key") {
        return Err(invalid("Idempotency-Key", "is not built yet and would be ignored: send no such header").into());
    }
    let made = engine.create(spec_reader::new_schedule(body.0)?).await?;
    let location = format!("/v1/schedules/{}", made.schedule.id);
    Ok(HttpResponse::Created().insert_header((header::LOCATION, location)).json(DescribedBody::from(&made)))
}

async fn list(engine: web::Data<Engine>, request: HttpRequest) -> Answer {
    let query = Query::of(&request, &["tenant", "state", "queue", "limit", "cursor"])?;
    let filter = ListingFilter {
        tenant: query.name("tenant")?,
        queue: query.name("queue")?,
        state: query.word("state", words::SCHEDULE_STATE)?,
    };
    let (limit, cursor) = query.page()?;
    let page = engine.schedules(filter, limit, cursor).await?;
    Ok(HttpResponse::Ok().json(PageBody::<ScheduleBody<'_>>::from(&page)))
}

async fn show(engine: web::Data<Engine>, request: HttpRequest, id: web::Path<String>) -> Answer {
    Query::of(&request, &[])?;
    let described = engine.schedule(schedule_id(&id)?).await?;
    Ok(HttpResponse::Ok().json(DescribedBody::from(&described)))
}

async fn cancel(engine: web::Data<Engine>, request: HttpRequest, id: web::Path<String>) -> Answer {
    Query::of(&request, &[])?;
    let canceled = engine.cancel(schedule_id(&id)?).await?;
    Ok(HttpResponse::Ok().json(ReceiptedBody::new(&canceled.schedule, &canceled.receipt)))
}

async fn history(engine: web::Data<Engine>, request: HttpRequest, id: web::Path<String>) -> Answer {
    let query = Query::of(&request, &["state", "from", "to", "limit", "cursor"])?;
    let filter = HistoryFilter {
        state: query.word("state", words::OCCURRENCE_STATE)?,
        from: query.instant("from")?,
        to: query.instant("to")?,
    };
    let (limit, cursor) = query.page()?;
    let page = engine.occurrences(schedule_id(&id)?, filter, limit, cursor).await?;
    Ok(HttpResponse::Ok().json(PageBody::<HistoryBody<'_>>::from(&page)))
}

async fn preview(engine: web::Data<Engine>, request: HttpRequest, body: JsonBody) -> Answer {
    Query::of(&request, &[])?;
    let asked = spec_reader::preview(body.0)?;
    // Ten thousand instants are milliseconds of work: not on the thread that serves everybody.
    let forecast = web::block(move || engine.forecast(&asked.rule, asked.bounds, asked.from, asked.count));
    let forecast = forecast.await.map_err(|_| ApiError::internal())??;
    Ok(HttpResponse::Ok().json(ForecastBody::from(&forecast)))
}

async fn healthz(engine: web::Data<Engine>) -> HttpResponse {
    let health = engine.health();
    status(health.live).json(HealthBody::from(&health))
}

async fn readyz(engine: web::Data<Engine>) -> HttpResponse {
    let readiness = engine.readiness();
    status(readiness.ready).json(ReadinessBody::from(&readiness))
}

async fn show_metrics(engine: web::Data<Engine>) -> HttpResponse {
    HttpResponse::Ok().content_type(metrics::CONTENT_TYPE).body(metrics::render(&engine.metrics()))
}

fn status(fine: bool) -> HttpResponseBuilder {
    if fine { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() }
}

/// An id that does not read names nothing: the answer is the same as for one that is not there.
fn schedule_id(text: &str) -> Result<ScheduleId, ApiError> {
    text.parse().map_err(|_| ApiError::no_such_schedule())
}
