//! The document that describes the API, and the API: what one says the other does.

use serde_json::{Value, json};

use crate::server::Server;

#[test]
fn every_path_of_the_document_is_served_and_refuses_other_methods() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "1"]);
    let document = server.call("GET", "/v1/openapi.json", "").json();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, operations) in document["paths"].as_object().unwrap() {
        let real = path.replace("{id}", "01234567-89ab-4def-8123-456789abcdef");
        let known: Vec<String> = operations.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let status = server.call(method, &real, "").status;
            assert_eq!(status == 405, !known.iter().any(|known| known == method), "{method} {path}: {status}");
        }
    }
}

#[test]
fn a_field_of_the_document_is_known_and_any_other_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "1"]);
    let document = server.call("GET", "/v1/openapi.json", "").json();
    let operation = &document["paths"]["/v1/schedules"]["post"];
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let fields: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert!(fields.len() >= 17);
    for field in fields {
        // A value that no field takes: the refusal shows that the field is known.
        let body = json!({"tenant": "acme", "queue": "q", "rule": {"every": "5m"}});
        let Value::Object(mut body) = body else { unreachable!() };
        body.insert(field.clone(), json!([]));
        let reply = server.call("POST", "/v1/schedules", &Value::Object(body).to_string());
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, error["field"].as_str()), (422, Some(field.as_str())), "{reply:?}");
        assert!(error["message"].as_str().unwrap().contains("not an array"), "{error}");
    }
}
