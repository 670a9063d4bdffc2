//! Bodies of fuzz targets, as plain functions that tests run too. Each panics when a promise is broken.

use std::sync::{Arc, LazyLock};

use crate::{
    kernel::{
        calendar::{
            CronRule, CronSpec, DayMatch, FoldChoice, Gap, ZoneSet,
            preview::{Previewed, Window, preview as look_ahead},
        },
        record::Record,
        shard::model::run_kernel,
        time::UnixMs,
    },
    shell::tzdata,
};

static ZONES: LazyLock<ZoneSet> = LazyLock::new(tzdata::bundled);
static SHARED_ZONES: LazyLock<Arc<ZoneSet>> = LazyLock::new(|| Arc::new(tzdata::bundled()));
const PLACES: [&str; 6] =
    ["UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Antarctica/Troll", "Africa/Casablanca"];

/// Bytes as an expression: refused in one lower-case line, or a rule.
pub fn cron_tokenizer(bytes: &[u8]) {
    let expr = String::from_utf8_lossy(bytes);
    match CronRule::new(&CronSpec::new(expr.clone(), "UTC"), &ZONES) {
        Ok(_) => assert!(expr.len() <= 256 && expr.is_ascii()),
        Err(error) => {
            let message = error.to_string();
            assert!(message.len() < 512 && !message.contains(['\n', '\r', '\0']), "{message:?}");
        }
    }
}

/// 10 bytes of choices and an instant, then an expression: growth, counting and the latest instant agree.
pub fn preview(bytes: &[u8]) {
    let Some((head, expr)) = bytes.split_first_chunk::<10>() else { return };
    let instant: [u8; 8] = head[2..].try_into().expect("8 of 10 bytes");
    let from = UnixMs(i64::from_le_bytes(instant) >> (head[1] >> 3 & 31));
    let spec = CronSpec {
        fold: [FoldChoice::Auto, FoldChoice::Once, FoldChoice::Both][usize::from(head[1]) % 3],
        gap: if head[1] & 1 == 0 { Gap::Skip } else { Gap::Shift },
        day_match: if head[1] & 2 == 0 { DayMatch::Or } else { DayMatch::And },
        ..CronSpec::new(String::from_utf8_lossy(expr), PLACES[usize::from(head[0]) % PLACES.len()])
    };
    let Ok(rule) = CronRule::new(&spec, &ZONES) else { return };
    let shown = look_ahead(Previewed::Cron(&rule), &Window { from, start_at: None, end_at: None, count: 8 });
    let mut before = from;
    for fire in &shown.next {
        assert!(fire.at > before && rule.next(before) == Some(fire.at));
        assert_eq!(rule.count(before, fire.at), 1);
        before = fire.at;
    }
    let Some(last) = shown.next.last() else { return };
    assert_eq!(rule.count(from, last.at), shown.next.len() as u64);
    assert_eq!(rule.latest(from, last.at), Some(last.at));
}

/// A kind and a body: an error, or a record whose bytes are read back as itself.
pub fn record(bytes: &[u8]) {
    let Some((&kind, body)) = bytes.split_first() else { return };
    if let Ok(record) = Record::decode(kind, body) {
        let mut again = Vec::new();
        record.encode(&mut again);
        assert_eq!(Record::decode(kind, &again).as_ref(), Ok(&record));
    }
}

/// Choices: a shard, its log, its clocks and its queue keep every promise.
pub fn kernel(script: &[u8]) {
    run_kernel(script, &SHARED_ZONES);
}

/// Chunks of a snapshot: refused with a sentence, or a shard that opens and goes on.
pub fn snapshot(chunks: &[u8]) {
    crate::kernel::shard::model::restore_anything(chunks, &SHARED_ZONES);
}

/// What Redis might answer, as it comes over the wire, and as the fields of one entry: the engine and the client for
/// consumers understand it, or say that it is nonsense.
#[cfg(feature = "worker")]
pub fn stream_entries(bytes: &[u8]) {
    use redis::Value;
    if let Ok(answer) = redis::parse_redis_value(bytes) {
        crate::shell::redis_queue::read_anything(&answer);
        crate::worker::read_anything(&answer);
    }
    let fields = bytes.split(|byte| *byte == 0).map(|field| Value::BulkString(field.to_vec())).collect();
    let entry = Value::Array(vec![Value::BulkString(b"1-1".to_vec()), Value::Array(fields)]);
    let page = Value::Array(vec![entry]);
    crate::shell::redis_queue::read_anything(&page);
    crate::worker::read_anything(&page);
}

/// A byte that chooses the call, then any bytes as its body: what was understood, or a refusal with a code and a field.
#[cfg(feature = "server")]
pub fn http_body(bytes: &[u8]) {
    crate::api::fuzz_body(bytes, &SHARED_ZONES);
}

#[cfg(test)]
mod tests {
    /// Bodies made of what bodies are made of: pieces of JSON with the words of the API, now and then a wild byte.
    #[cfg(feature = "server")]
    #[test]
    fn bodies_of_requests_are_understood_or_refused_by_a_field() {
        const PIECES: &[&str] = &[
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "null",
            "true",
            "-1",
            "7",
            "1e9",
            "1e999",
            "\"\"",
            "\"tenant\":",
            "\"queue\":",
            "\"rule\":{",
            "\"cron\":\"* * * * *\"",
            "\"zone\":\"UTC\"",
            "\"every\":\"5m\"",
            "\"at\":",
            "\"acme\"",
            "\"payload\":",
            "\"payload_base64\":",
            "\"misfire\":{",
            "\"policy\":",
            "\"CATCH_UP\"",
            "\"limit\":",
            "\"retry\":{",
            "\"base\":",
            "\"30s\"",
            "\"start_at\":",
            "\"2026-01-01T00:00:00Z\"",
            "\"from\":",
            "\"to\":",
            "\"key\":",
            "\"count\":",
            "\"max_lateness_ms\":",
            "\"\\u0000\"",
            "\"\\ud800\"",
            "\u{feff}",
        ];
        const GOOD: &str = r#"{"tenant":"acme","queue":"q","rule":{"every":"5m"}}"#;
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut draw = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize % below
        };
        for _ in 0..20_000 {
            let mut bytes = vec![draw(256) as u8];
            if draw(2) == 0 {
                bytes.push(b'{');
                (0..draw(14)).for_each(|_| bytes.extend_from_slice(PIECES[draw(PIECES.len())].as_bytes()));
                bytes.push(b'}');
            } else {
                bytes.extend_from_slice(GOOD.as_bytes());
                for _ in 0..draw(4) {
                    let at = 1 + draw(bytes.len() - 1);
                    bytes.splice(at..at, PIECES[draw(PIECES.len())].bytes());
                    let at = 1 + draw(bytes.len() - 1);
                    bytes[at] = draw(256) as u8;
                }
            }
            super::http_body(&bytes);
        }
    }

    /// An entry as it should be, then with a wild byte here and there, cut, and doubled.
    #[cfg(feature = "worker")]
    #[test]
    fn entries_of_streams_are_understood_or_nonsense() {
        let id = "01a22f5a-1861-8bc8-bcbd-a2228934cccf";
        let meta = format!("1 {id} 1 0 1793511000000 1793511000000 1 acme");
        let fields = ["occurrence_id", id, "meta", &meta, "payload", "x"];
        let wire: String = fields.iter().map(|field| format!("${}\r\n{field}\r\n", field.len())).collect();
        let good = [fields.join("\0").into_bytes(), format!("*1\r\n*2\r\n$3\r\n1-1\r\n*6\r\n{wire}").into_bytes()];
        let mut state = 0x1234_5678_9abc_def1_u64;
        let mut draw = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize % below
        };
        for round in 0..20_000 {
            let mut bytes = good[round % 2].clone();
            for _ in 0..draw(4) {
                let at = draw(bytes.len());
                bytes[at] = draw(256) as u8;
            }
            match draw(4) {
                0 => bytes.truncate(draw(bytes.len())),
                1 => bytes.extend_from_within(..draw(200).min(good[round % 2].len())),
                _ => {}
            }
            super::stream_entries(&bytes);
        }
    }

    /// The smoke size of the fuzz targets: seeded bytes that lean towards what expressions are made of.
    #[test]
    fn targets_hold_for_seeded_bytes() {
        const LETTERS: &[u8] = b"0123456789*/,-#LW? \tJANMONSUNFRI@";
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..10).map(|_| draw() as u8).collect();
            let fields = 5 + draw() % 2;
            for field in 0..fields {
                let wild = draw() % 3 == 0;
                let length = if wild { 1 } else { 1 + draw() % 4 };
                let item = (0..length).map(|_| LETTERS[draw() as usize % LETTERS.len()]);
                bytes.extend(if wild { vec![b'*'] } else { item.collect() });
                bytes.extend((field + 1 < fields).then_some(b' '));
            }
            super::cron_tokenizer(&bytes[10..]);
            super::preview(&bytes);
        }
    }
}
