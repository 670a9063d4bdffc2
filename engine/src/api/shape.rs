//! What a field of a request looks like: the readers know their fields from tables of these, and so does the document
//! that describes the API.

use serde_json::{Value, json};

/// One field of a body, or one parameter of a query or head.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    /// What it says, for readers of the document.
    pub(crate) about: &'static str,
    pub(crate) required: bool,
}

impl Field {
    pub(crate) const fn new(name: &'static str, shape: Shape, about: &'static str) -> Self {
        Self { name, shape, about, required: false }
    }

    pub(crate) const fn required(name: &'static str, shape: Shape, about: &'static str) -> Self {
        Self { name, shape, about, required: true }
    }
}

/// What kind of value a field takes.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A string.
    Text,
    /// The name of a tenant or a queue.
    Name,
    /// A UUID.
    Id,
    /// A lease token.
    Token,
    /// Bytes as standard base64 with padding.
    Base64,
    /// An RFC 3339 instant.
    Instant,
    /// A duration with its unit: `30s`.
    Duration,
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// `true` or `false`.
    Bool,
    /// One of these words.
    Words(fn() -> Vec<&'static str>),
    /// An object with these fields and no others.
    Object(&'static [Field]),
    /// 1 to so many objects with these fields.
    List(&'static [Field], usize),
}

impl Shape {
    /// A whole number of milliseconds.
    pub(crate) const MS: Self = Self::Whole(0, 366 * 86_400_000);
    /// Any whole number that the engine can hold.
    pub(crate) const COUNT: Self = Self::Whole(0, u32::MAX as u64);

    /// As a schema of JSON Schema 2020-12.
    pub(crate) fn schema(&self) -> Value {
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Name => json!({"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$"}),
            Self::Id => json!({"type": "string", "format": "uuid"}),
            Self::Token => json!({"type": "string", "pattern": "^[0-9a-f]{24}$"}),
            Self::Base64 => json!({"type": "string", "contentEncoding": "base64"}),
            Self::Instant => json!({"type": "string", "format": "date-time"}),
            Self::Duration => json!({"type": "string", "examples": ["500ms", "30s", "5m", "24h"]}),
            Self::Whole(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
            Self::Bool => json!({"type": "boolean"}),
            Self::Words(words) => json!({"type": "string", "enum": words()}),
            Self::Object(fields) => object(fields),
            Self::List(fields, most) => {
                json!({"type": "array", "items": object(fields), "minItems": 1, "maxItems": most})
            }
        }
    }
}

/// An object of `fields`. In a body `null` may stand for each that is not required.
pub(crate) fn object(fields: &[Field]) -> Value {
    let property = |field: &Field| {
        let mut schema = field.shape.schema();
        schema["description"] = field.about.into();
        if !field.required {
            schema = json!({"anyOf": [schema, {"type": "null"}]});
        }
        (field.name.to_owned(), schema)
    };
    let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    let properties: serde_json::Map<String, Value> = fields.iter().map(property).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
