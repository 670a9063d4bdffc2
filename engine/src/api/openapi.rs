//! The document that describes the API (OpenAPI 3.1), written from the table of calls and the tables of fields: a call
//! or a field that the server knows cannot be missing from it.

use serde_json::{Map, Value, json};

use super::{
    calls::{Access, Body, CALLS, Call, Verb},
    errors::{CODES, COMMON, OF_BODIES, OPEN},
    schemas::{of, schemas},
    shape::{Field, object},
};

/// The whole document.
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for call in CALLS {
        let path = paths.entry(call.path).or_insert_with(|| json!({}));
        path[call.verb.as_str().to_ascii_lowercase()] = operation(call);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Countwheel",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Schedules, and what became of their instants. Fields that are not known are refused (422); \
                instants are RFC 3339 with milliseconds; null is the same as leaving a field out, except in a PATCH, \
                where it asks for the default.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn operation(call: &Call) -> Value {
    let mut operation = json!({
        "summary": call.summary,
        "operationId": operation_id(call),
        "parameters": parameters(call),
        "responses": responses(call),
        // A server without a file of tokens takes none.
        "security": if call.access == Access::Open { json!([]) } else { json!([{"token": []}, {}]) },
    });
    if let Some((content_type, schema)) = match call.body {
        Body::None => None,
        Body::Json(fields) => Some(("application/json", object(fields))),
        Body::Merge(fields) => Some(("application/merge-patch+json", object(fields))),
        Body::Lines(fields) => Some(("application/x-ndjson", object(fields))),
        Body::OneOrMany(fields) => {
            let (one, many) = fields.split_at(fields.len().saturating_sub(1));
            Some(("application/json", json!({"oneOf": [object(one), object(many)]})))
        }
    } {
        operation["requestBody"] = json!({"required": true, "content": {content_type: {"schema": schema}}});
    }
    operation
}

/// `post_v1_schedules_id_pause`
fn operation_id(call: &Call) -> String {
    let words = call.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(call.verb.as_str().to_ascii_lowercase(), |id, word| format!("{id}_{word}"))
}

fn parameters(call: &Call) -> Vec<Value> {
    let in_path = call
        .path
        .contains("{id}")
        .then(|| json!({"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}));
    let given = |place: &'static str| {
        move |field: &Field| {
            json!({"name": field.name, "in": place, "required": field.required, "description": field.about,
                "schema": field.shape.schema()})
        }
    };
    in_path
        .into_iter()
        .chain(call.query.iter().map(given("query")))
        .chain(call.head.iter().map(given("header")))
        .collect()
}

fn responses(call: &Call) -> Value {
    let mut responses = Map::new();
    for (status, schema) in call.answers {
        let content_type = match *schema {
            "Metrics" => "text/plain",
            "ImportLine" => "application/x-ndjson",
            _ => "application/json",
        };
        let fine = json!({"description": schema, "content": {content_type: {"schema": of(schema)}}});
        responses.insert(status.to_string(), fine);
    }
    for (status, codes) in errors(call) {
        let problem =
            json!({"description": codes.join(", "), "content": {"application/json": {"schema": of("Error")}}});
        responses.insert(status.to_string(), problem);
    }
    responses.into()
}

/// Status by status, the codes that a call may answer with.
fn errors(call: &Call) -> Vec<(u16, Vec<&'static str>)> {
    let mut by_status: Vec<(u16, Vec<&str>)> = Vec::new();
    let common = if call.access == Access::Open { OPEN } else { COMMON };
    let of_bodies = if call.verb == Verb::Get { &[] } else { OF_BODIES };
    let may = |code| [common, of_bodies, call.errors].iter().any(|codes| codes.contains(code));
    for (code, status) in CODES.iter().filter(|(code, _)| may(code)) {
        match by_status.iter_mut().find(|(known, _)| known == status) {
            Some((_, codes)) => codes.push(code),
            None => by_status.push((*status, vec![code])),
        }
    }
    by_status
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every `$ref` and every `operationId` below `value`.
    fn walk<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(entries) => {
                found.extend(entries.get(key).and_then(Value::as_str));
                entries.values().for_each(|value| walk(value, key, found));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, key, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_schema_is_used() {
        let document = document();
        let mut references = Vec::new();
        walk(&document, "$ref", &mut references);
        let used: BTreeSet<&str> = references.iter().map(|name| name.rsplit('/').next().unwrap()).collect();
        for reference in references {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
        for name in schemas().keys() {
            assert!(used.contains(name.as_str()), "{name} is used nowhere");
        }
    }

    #[test]
    fn the_document_has_the_shape_of_openapi_3_1_and_every_call() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
        let mut ids = Vec::new();
        walk(&document, "operationId", &mut ids);
        assert_eq!(ids.len(), CALLS.len());
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "operation ids are unique");
        for call in CALLS {
            let operation = &document["paths"][call.path][call.verb.as_str().to_ascii_lowercase()];
            let responses = operation["responses"].as_object().unwrap();
            assert!(!call.answers.is_empty() && responses.len() >= call.answers.len(), "{}", call.path);
            for (status, response) in responses {
                assert!(status.len() == 3 && response["description"].is_string(), "{response}");
            }
            let parameters = operation["parameters"].as_array().unwrap();
            for parameter in parameters {
                assert!(["path", "query", "header"].contains(&parameter["in"].as_str().unwrap()), "{parameter}");
                assert!(parameter["schema"]["type"].is_string(), "{parameter}");
            }
            assert_eq!(parameters.iter().any(|parameter| parameter["in"] == "path"), call.path.contains('{'));
        }
    }

    #[test]
    fn calls_name_codes_and_schemas_that_there_are() {
        for call in CALLS {
            for code in call.errors {
                assert!(CODES.iter().any(|(known, _)| known == code), "{code}");
                assert!(!COMMON.contains(code) && !OF_BODIES.contains(code), "{code} is every call's");
            }
            for (_, schema) in call.answers {
                assert!(schemas().contains_key(*schema), "{schema}");
            }
            assert!(!call.path.is_empty() && !call.summary.is_empty());
        }
    }
}
