//! What every request passes before its handler: who asks, whether they may, and whether anything in its head or query
//! would be ignored. In this order, so that nobody learns anything without a token.

use std::{
    future::{Ready, ready},
    sync::Arc,
};

use actix_web::{
    FromRequest, HttpMessage, HttpRequest, ResponseError,
    body::{EitherBody, MessageBody},
    dev::{Payload, ServiceRequest, ServiceResponse},
    http::header,
    middleware::Next,
};

use super::{
    auth::{Role, TokenFile},
    calls::{Access, CALLS, Call, Verb},
    errors::ApiError,
    request::{Query, check_encoding, check_head},
};
use crate::engine::Engine;

/// What a server guards.
#[derive(Clone)]
pub(crate) struct Guarded {
    pub(crate) engine: Engine,
    /// Without tokens whoever reaches the server may do everything.
    pub(crate) tokens: Option<Arc<TokenFile>>,
}

/// Who asks: an engine that shows what they may see.
pub(crate) struct Caller {
    pub(crate) engine: Engine,
    role: Role,
}

impl Caller {
    fn new(engine: &Engine, role: Role) -> Self {
        let engine = match &role {
            Role::Tenant(tenant) => engine.for_tenant(tenant),
            Role::Worker(queue) => engine.for_queue(queue),
            Role::Admin => engine.clone(),
        };
        Self { engine, role }
    }

    /// Whose the caller's schedules are, where nothing is said.
    pub(crate) fn tenant(&self) -> Option<&str> {
        match &self.role {
            Role::Tenant(tenant) => Some(tenant),
            Role::Admin | Role::Worker(_) => None,
        }
    }
}

/// What [`admit`] found out.
impl FromRequest for Caller {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let caller = request.extensions_mut().remove::<Self>();
        ready(caller.ok_or_else(ApiError::unauthorized))
    }
}

/// Lets a request through to its handler, or answers it.
pub(crate) async fn admit<B: MessageBody>(
    guarded: Guarded,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, actix_web::Error> {
    match check(&guarded, &request) {
        Ok(()) => Ok(next.call(request).await?.map_into_left_body()),
        Err(refusal) => Ok(request.into_response(refusal.error_response()).map_into_right_body()),
    }
}

fn check(guarded: &Guarded, request: &ServiceRequest) -> Result<(), ApiError> {
    // Without tokens any web page that a person on this machine opens could reach the loopback address, and a browser
    // sends what such a page asks for. It also names the page.
    // A page of a name that was made to resolve to this machine names no page, but that name as the host.
    let is_page = request.headers().contains_key(header::ORIGIN)
        || request.headers().get("Sec-Fetch-Site").is_some_and(|site| site.as_bytes() != b"none");
    if is_page || (guarded.tokens.is_none() && !names_this_machine(request)) {
        return Err(ApiError::cross_origin());
    }
    let call = called(request);
    if let Some(open) = call.filter(|call| call.access == Access::Open) {
        return Ok(Query::read(request.query_string(), open.query).map(drop)?);
    }
    let role = match &guarded.tokens {
        None => Role::Admin,
        Some(tokens) => bearer(request).and_then(|token| tokens.role_of(token)).ok_or_else(ApiError::unauthorized)?,
    };
    // What is not there and what the path does not know is told by the routes.
    let Some(call) = call else { return Ok(()) };
    let may = match role {
        Role::Admin => true,
        Role::Tenant(_) => call.access == Access::Tenant,
        Role::Worker(_) => call.access == Access::Worker,
    };
    if !may {
        return Err(ApiError::forbidden(&role));
    }
    let query = Query::read(request.query_string(), call.query)?;
    check_head(request.headers(), call.head)?;
    check_encoding(request.headers())?;
    request.extensions_mut().insert(query);
    request.extensions_mut().insert(Caller::new(&guarded.engine, role));
    Ok(())
}

/// Whether the host that the request names is this machine by its address, or a name that nobody can own: one without a
/// dot, such as `localhost`. None is fine too.
fn names_this_machine(request: &ServiceRequest) -> bool {
    let uri = request.uri().authority().map(|authority| authority.as_str());
    let header = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
    let Some(host) = uri.or(header) else { return true };
    let name =
        host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(n, _)| n);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    address.map_or_else(|_| !name.contains('.'), |address| address.is_loopback())
}

/// The call that a request makes, if there is one.
fn called(request: &ServiceRequest) -> Option<&'static Call> {
    let pattern = request.match_pattern()?;
    let verb = Verb::of(request.method())?;
    CALLS.iter().find(|call| call.path == pattern && call.verb == verb)
}

fn bearer(request: &ServiceRequest) -> Option<&str> {
    let (scheme, token) = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}
