//! What each call about runs does: workers claim and tell, people look and decide.

use actix_web::{HttpResponse, web};
use serde::Serialize;

use super::{
    admit::Caller,
    errors::ApiError,
    handlers::{Answer, occurrence_id},
    render::{OccurrenceBody, PageBody},
    request::{JsonBody, NoBody, Query},
    run_reader,
    run_render::{Answered, BeatBody, ClaimedBody, CompletedBody, EvidencedBody, FailedBody, ResultsBody, RunBody},
};
use crate::{engine::runs::Pile, error::RunError};

pub(super) async fn claim(caller: Caller, queue: web::Path<String>, body: JsonBody) -> Answer {
    let claim = run_reader::claim(body.0)?;
    let runs = caller.engine.claim(&queue, &claim).await?;
    Ok(HttpResponse::Ok().json(ClaimedBody::from(&runs)))
}

pub(super) async fn claim_one(caller: Caller, id: web::Path<String>, body: JsonBody) -> Answer {
    let id = occurrence_id(&id)?;
    let run_reader::ClaimOne { worker, lease, schedule } = run_reader::claim_one(body.0)?;
    let run = caller.engine.claim_occurrence(id, schedule, &worker, lease).await?;
    Ok(HttpResponse::Ok().json(RunBody::from(&run)))
}

pub(super) async fn heartbeat(caller: Caller, body: JsonBody) -> Answer {
    let said = run_reader::beats(body.0)?;
    answered::<_, BeatBody>(said.is_batch, caller.engine.heartbeat(said.runs).await?)
}

pub(super) async fn complete(caller: Caller, body: JsonBody) -> Answer {
    let said = run_reader::completions(body.0)?;
    answered::<_, CompletedBody>(said.is_batch, caller.engine.complete(said.runs).await?)
}

pub(super) async fn fail(caller: Caller, body: JsonBody) -> Answer {
    let said = run_reader::failures(body.0)?;
    answered::<_, FailedBody>(said.is_batch, caller.engine.fail(said.runs).await?)
}

/// The answers, in the form in which was asked.
fn answered<T, B: From<T> + Serialize>(is_batch: bool, answers: Vec<Result<T, RunError>>) -> Answer {
    let mut told = answers.into_iter().map(|answer| answer.map(B::from).map_err(ApiError::from));
    if is_batch {
        let told = told.map(|answer| answer.map_or_else(Answered::Refused, Answered::Told));
        return Ok(HttpResponse::Ok().json(ResultsBody { results: told.collect() }));
    }
    let one = told.next().ok_or_else(ApiError::internal)?;
    Ok(HttpResponse::Ok().json(one?))
}

pub(super) async fn evidence(caller: Caller, id: web::Path<String>) -> Answer {
    let (evidence, decision) = caller.engine.evidence(occurrence_id(&id)?).await?;
    Ok(HttpResponse::Ok().json(EvidencedBody::new(&evidence, &decision)))
}

pub(super) async fn replay(caller: Caller, id: web::Path<String>, _: NoBody) -> Answer {
    Ok(HttpResponse::Ok().json(OccurrenceBody::from(&caller.engine.replay(occurrence_id(&id)?).await?)))
}

pub(super) async fn resolve(caller: Caller, id: web::Path<String>, body: JsonBody) -> Answer {
    let id = occurrence_id(&id)?;
    let resolved = caller.engine.resolve(id, run_reader::decided(body.0)?).await?;
    Ok(HttpResponse::Ok().json(OccurrenceBody::from(&resolved)))
}

pub(super) async fn dead(caller: Caller, query: Query) -> Answer {
    pile(Pile::Dead, &caller, &query).await
}

pub(super) async fn held(caller: Caller, query: Query) -> Answer {
    pile(Pile::Held, &caller, &query).await
}

async fn pile(pile: Pile, caller: &Caller, query: &Query) -> Answer {
    let tenant = query.name("tenant")?;
    let (limit, cursor) = query.page()?;
    let page = caller.engine.pile(pile, tenant.as_deref(), limit, cursor).await?;
    Ok(HttpResponse::Ok().json(PageBody::<OccurrenceBody<'_>>::from(&page)))
}
