//! How a record's body becomes bytes and back: bincode 2, little-endian with variable-length integers.
//!
//! This is the only module that names bincode. The crate's next major release is a tombstone; a test reads our golden
//! vectors with `wincode`, which is maintained and writes the same bytes, so that there is a way out.

use bincode::{Decode, Encode, config};

/// A record is part of a batch body of at most 4 MiB; nothing longer is decoded, and no length inside is believed
/// beyond it.
const BODY_LIMIT: usize = 4 << 20;

const fn layout() -> config::Configuration<config::LittleEndian, config::Varint, config::Limit<BODY_LIMIT>> {
    config::standard().with_limit::<BODY_LIMIT>()
}

/// Appends `body`'s bytes to `out`.
pub(crate) fn encode(body: &impl Encode, out: &mut Vec<u8>) {
    bincode::encode_into_std_write(body, out, layout()).expect("writing to memory does not fail");
}

/// Reads a body that must fill `bytes` to the last byte.
///
/// # Errors
/// Bytes that are not such a body, in bincode's words.
pub(crate) fn decode<Body: Decode<()>>(bytes: &[u8]) -> Result<Body, Undecodable> {
    let (body, used) = bincode::decode_from_slice(bytes, layout()).map_err(|e| Undecodable(e.to_string()))?;
    if used != bytes.len() {
        return Err(Undecodable(format!("{} bytes are left behind the record", bytes.len() - used)));
    }
    Ok(body)
}

/// Bytes that are no record body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a record body: {0}")]
pub struct Undecodable(String);
