//! What stands at which path, made from the table of calls.

use std::future::{Ready, ready};

use actix_web::{HttpResponse, Route, guard, web};

use super::{
    calls::{CALLS, Call, Verb},
    errors::ApiError,
};

/// Every path of the server. A literal path comes before the patterns that it would fit: the table keeps that order.
pub(crate) fn routes(config: &mut web::ServiceConfig) {
    let mut paths: Vec<&str> = Vec::new();
    for path in CALLS.iter().map(|call| call.path) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    for path in paths {
        let calls = CALLS.iter().filter(|call| call.path == path);
        let resource = calls.clone().map(route).fold(web::resource(path), actix_web::Resource::route);
        config.service(resource.default_service(only(allowed(calls))));
    }
}

/// What answers where no path of [`routes`] does.
pub(crate) fn nothing_here() -> Ready<Result<HttpResponse, ApiError>> {
    ready(Err(ApiError::no_such_path()))
}

fn route(call: &Call) -> Route {
    let route = (call.route)();
    match call.verb {
        Verb::Get => route.guard(guard::Any(guard::Get()).or(guard::Head())),
        Verb::Post => route.guard(guard::Post()),
        Verb::Put => route.guard(guard::Put()),
        Verb::Patch => route.guard(guard::Patch()),
        Verb::Delete => route.guard(guard::Delete()),
    }
}

fn allowed<'a>(calls: impl Iterator<Item = &'a Call>) -> String {
    let verbs: Vec<&str> =
        calls.map(|call| if call.verb == Verb::Get { "GET, HEAD" } else { call.verb.as_str() }).collect();
    verbs.join(", ")
}

fn only(methods: String) -> Route {
    web::to(move || ready(Result::<HttpResponse, _>::Err(ApiError::method_not_allowed(&methods))))
}
