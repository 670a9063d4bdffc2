//! How a record's body becomes bytes and back: bincode 2, little-endian with variable-length integers.
//!
//! This is the only module that names bincode. The crate's next major release is a tombstone; a test reads our golden
//! vectors with `wincode`, which is maintained and writes the same bytes, so that there is a way out.

use bincode::{BorrowDecode, Decode, Encode, config};

/// bincode counts a value at its size in memory, at most eight times its bytes here (a `u64` in one byte), and allocates
/// what a length inside claims up to its limit. So the limit follows the bytes: nothing small asks for much.
const SMALL: usize = 512;
const MEDIUM: usize = 64 << 10;
/// A record is part of a batch body of at most 4 MiB.
const LARGE: usize = 4 << 20;

const fn layout<const BYTES: usize>()
-> config::Configuration<config::LittleEndian, config::Varint, config::Limit<BYTES>> {
    config::standard().with_limit::<BYTES>()
}

/// Appends `body`'s bytes to `out`.
pub(crate) fn encode(body: &impl Encode, out: &mut Vec<u8>) {
    bincode::encode_into_std_write(body, out, config::standard()).expect("writing to memory does not fail");
}

/// Reads a body that must fill `bytes` to the last byte.
///
/// # Errors
/// Bytes that are not such a body, in bincode's words.
pub(crate) fn decode<Body: Decode<()>>(bytes: &[u8]) -> Result<Body, Undecodable> {
    let decoded = if bytes.len() <= SMALL {
        bincode::decode_from_slice(bytes, layout::<{ SMALL * 8 }>())
    } else if bytes.len() <= MEDIUM {
        bincode::decode_from_slice(bytes, layout::<{ MEDIUM * 8 }>())
    } else if bytes.len() <= LARGE {
        bincode::decode_from_slice(bytes, layout::<{ LARGE * 8 }>())
    } else {
        return Err(Undecodable(format!("{} bytes are more than a batch holds", bytes.len())));
    };
    let (body, used) = decoded.map_err(|e| Undecodable(e.to_string()))?;
    if used != bytes.len() {
        return Err(Undecodable(format!("{} bytes are left behind the record", bytes.len() - used)));
    }
    Ok(body)
}

/// Reads the value that `bytes` begin with, which may borrow from them, and says how many it took.
///
/// # Errors
/// Bytes that begin with no such value, in bincode's words.
pub(crate) fn decode_first<'a, Body: BorrowDecode<'a, ()>>(bytes: &'a [u8]) -> Result<(Body, usize), Undecodable> {
    let decoded = if bytes.len() <= SMALL {
        bincode::borrow_decode_from_slice(bytes, layout::<{ SMALL * 8 }>())
    } else if bytes.len() <= MEDIUM {
        bincode::borrow_decode_from_slice(bytes, layout::<{ MEDIUM * 8 }>())
    } else {
        bincode::borrow_decode_from_slice(bytes, layout::<{ LARGE * 8 }>())
    };
    decoded.map_err(|e| Undecodable(e.to_string()))
}

/// Bytes that are no record body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a record body: {0}")]
pub struct Undecodable(String);
