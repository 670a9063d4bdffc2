//! `POST /v1/schedules/import`: lines of specs in, lines of results out, in order, both as they come.
//!
//! What is held at a time is bounded, whatever the length of the whole: a few batches. A client that does not read its
//! answers is not read from any more.

use std::{convert::Infallible, time::Duration};

use actix_web::{
    HttpResponse,
    rt::time::timeout,
    web::{self, Bytes, BytesMut},
};
use futures_util::{FutureExt, Stream, StreamExt, stream};
use serde::Serialize;

use super::{
    admit::Caller,
    errors::{ApiError, ErrorFields},
    render::Id,
    request::parse,
    spec_reader,
};
use crate::{
    engine::{Engine, KeyedSchedule, Made, Prepared},
    error::CallError,
    kernel::id::ScheduleId,
};

/// Longest line, its end not counted.
const LINE_BYTES: usize = 256 * 1024;
/// A batch is closed by so many lines, ...
const BATCH_LINES: usize = 512;
/// ... by so many bytes, or when nothing more has come yet: nobody waits for lines that are not there.
const BATCH_BYTES: usize = 1024 * 1024;
/// So many batches are read and resolved while the one before them is being made durable.
const BATCHES_AHEAD: usize = 3;
/// How long a client may pause.
const IDLE_SECONDS: u64 = 30;

/// One line with its number from 1, or why it is none.
#[derive(Debug)]
struct Line {
    number: u64,
    text: Result<Bytes, ApiError>,
}

pub(super) async fn import(caller: Caller, payload: web::Payload) -> HttpResponse {
    let tenant = caller.tenant().map(str::to_owned);
    let engine = caller.engine;
    let maker = engine.clone();
    let results = batches(payload)
        .map(move |lines| {
            let (engine, tenant) = (engine.clone(), tenant.clone());
            web::block(move || Batch::prepare(&engine, lines, tenant.as_deref()))
        })
        .buffered(BATCHES_AHEAD)
        // Batches are made one after the other: of two lines with one key the first is the one that makes it.
        .then(move |batch| {
            let engine = maker.clone();
            async move {
                let bytes = match batch {
                    Ok(batch) => batch.make(&engine).await,
                    Err(_) => Bytes::new(),
                };
                Ok::<_, Infallible>(bytes)
            }
        });
    HttpResponse::Ok().content_type("application/x-ndjson").streaming(results)
}

/// Lines that were read and resolved.
struct Batch {
    /// Each line, and why it asks for nothing if so.
    lines: Vec<(u64, Option<ApiError>)>,
    prepared: Prepared,
}

impl Batch {
    fn prepare(engine: &Engine, lines: Vec<Line>, tenant: Option<&str>) -> Self {
        let mut asked = Vec::with_capacity(lines.len());
        let read = |line: Line| match line.text.and_then(|text| keyed_schedule(&text, tenant)) {
            Ok(new) => {
                asked.push(new);
                (line.number, None)
            }
            Err(error) => (line.number, Some(error)),
        };
        let lines = lines.into_iter().map(read).collect();
        Self { lines, prepared: engine.prepare(asked) }
    }

    async fn make(self, engine: &Engine) -> Bytes {
        let mut made = engine.create_prepared(self.prepared).await.into_iter();
        let mut answer = Vec::with_capacity(self.lines.len() * 128);
        for (number, error) in self.lines {
            let result = match error {
                Some(error) => Err(error),
                None => made.next().unwrap_or(Err(CallError::Stopping)).map_err(ApiError::from),
            };
            write_result(number, result.as_ref(), &mut answer);
        }
        answer.into()
    }
}

fn keyed_schedule(line: &[u8], tenant: Option<&str>) -> Result<KeyedSchedule, ApiError> {
    Ok(spec_reader::import_line(parse(line)?, tenant)?)
}

/// What became of a line.
#[derive(Serialize)]
#[serde(untagged)]
enum ResultLine<'a> {
    Made { line: u64, schedule_id: Id<ScheduleId>, version: u32, status: &'static str },
    Refused { line: u64, error: ErrorFields<'a> },
}

fn write_result(line: u64, result: Result<&Made, &ApiError>, answer: &mut Vec<u8>) {
    let result = match result {
        Ok(Made { schedule, is_new }) => ResultLine::Made {
            line,
            schedule_id: Id(schedule.id),
            version: schedule.version,
            status: if *is_new { "created" } else { "unchanged" },
        },
        Err(error) => ResultLine::Refused { line, error: error.fields() },
    };
    serde_json::to_writer(&mut *answer, &result).expect("numbers and strings are written to memory");
    answer.push(b'\n');
}

/// The lines of a body, in batches.
fn batches(payload: web::Payload) -> impl Stream<Item = Vec<Line>> {
    let lines =
        Lines { body: payload, bytes: BytesMut::new(), searched: 0, number: 0, is_skipping: false, ended: false };
    stream::unfold(lines, |mut lines| async move {
        let batch = lines.next_batch().await;
        (!batch.is_empty()).then_some((batch, lines))
    })
}

struct Lines<S> {
    body: S,
    bytes: BytesMut,
    /// There is no line's end in so many bytes of those at hand.
    searched: usize,
    /// Of the latest line.
    number: u64,
    /// Whether the rest of the latest line, which is too long, is still to come.
    is_skipping: bool,
    ended: bool,
}

impl<S, E> Lines<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    /// The next lines; none at the end. It waits for the first one only.
    async fn next_batch(&mut self) -> Vec<Line> {
        let (mut batch, mut batch_bytes) = (Vec::new(), 0);
        loop {
            while let Some(line) = self.next_line() {
                batch_bytes += line.text.as_ref().map_or(0, Bytes::len);
                batch.push(line);
                if batch.len() >= BATCH_LINES || batch_bytes >= BATCH_BYTES {
                    return batch;
                }
            }
            if self.ended {
                return batch;
            }
            let next = self.body.next();
            let chunk = if batch.is_empty() {
                timeout(Duration::from_secs(IDLE_SECONDS), next).await.map_err(|_| ApiError::too_slow(IDLE_SECONDS))
            } else {
                let Some(chunk) = next.now_or_never() else { return batch };
                Ok(chunk)
            };
            batch.extend(self.take(chunk));
        }
    }

    /// Takes what came of the body: bytes, its end, or the line that says why there is no more.
    fn take(&mut self, chunk: Result<Option<Result<Bytes, E>>, ApiError>) -> Option<Line> {
        let error = match chunk {
            Ok(Some(Ok(bytes))) => {
                self.bytes.extend_from_slice(&bytes);
                return None;
            }
            Ok(None) => {
                self.ended = true;
                return None;
            }
            Ok(Some(Err(_))) => ApiError::invalid_json("the body ended early: send the rest, from this line on"),
            Err(slow) => slow,
        };
        // What is at hand of a line is not all of it.
        self.bytes.clear();
        self.searched = 0;
        self.ended = true;
        self.number += 1;
        Some(Line { number: self.number, text: Err(error) })
    }

    /// The next line that is all there. A line without anything but blanks is none.
    fn next_line(&mut self) -> Option<Line> {
        loop {
            let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
            let line = match end {
                Some(at) => {
                    let line = self.bytes.split_to(self.searched + at + 1);
                    self.searched = 0;
                    line.freeze()
                }
                None if self.ended && !self.bytes.is_empty() => {
                    self.searched = 0;
                    self.bytes.split().freeze()
                }
                None => return self.too_long(),
            };
            if std::mem::take(&mut self.is_skipping) {
                continue;
            }
            self.number += 1;
            if without_end(&line).len() > LINE_BYTES {
                return Some(Line { number: self.number, text: Err(ApiError::too_large(LINE_BYTES)) });
            }
            if !line.trim_ascii().is_empty() {
                return Some(Line { number: self.number, text: Ok(line) });
            }
        }
    }

    /// Says once that a line is too long, and drops what is at hand of it.
    fn too_long(&mut self) -> Option<Line> {
        self.searched = self.bytes.len();
        if self.searched <= LINE_BYTES + 1 {
            return None;
        }
        self.bytes.clear();
        self.searched = 0;
        if std::mem::replace(&mut self.is_skipping, true) {
            return None;
        }
        self.number += 1;
        Some(Line { number: self.number, text: Err(ApiError::too_large(LINE_BYTES)) })
    }
}

/// A line without `\n` or `\r\n`: blanks before it are a part of the line.
fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers and lengths of what a body that comes in these pieces has; a line that is none has a code.
    async fn read(pieces: Vec<Result<Bytes, ()>>) -> Vec<Result<(u64, usize), (u64, String)>> {
        let body = stream::iter(pieces);
        let mut lines =
            Lines { body, bytes: BytesMut::new(), searched: 0, number: 0, is_skipping: false, ended: false };
        let mut all = Vec::new();
        loop {
            let batch = lines.next_batch().await;
            if batch.is_empty() {
                return all;
            }
            assert!(batch.len() <= BATCH_LINES);
            all.extend(batch.into_iter().map(|line| match line.text {
                Ok(text) => Ok((line.number, text.trim_ascii().len())),
                Err(error) => Err((line.number, error.code().to_owned())),
            }));
        }
    }

    #[actix_web::test]
    async fn lines_are_found_wherever_a_body_is_cut() {
        let body = b"ab\n\n  \r\ncde\r\nf";
        let want = vec![Ok((1, 2)), Ok((4, 3)), Ok((5, 1))];
        for cut in 0..=body.len() {
            let pieces = [&body[..cut], &body[cut..]].map(|piece| Ok(Bytes::copy_from_slice(piece)));
            assert_eq!(read(pieces.into()).await, want, "cut at {cut}");
        }
        assert_eq!(read(body.iter().map(|byte| Ok(Bytes::copy_from_slice(&[*byte]))).collect()).await, want);
        assert_eq!(read(vec![]).await, []);
    }

    #[actix_web::test]
    async fn a_line_that_is_too_long_is_refused_alone() {
        let mut body = vec![b'x'; LINE_BYTES];
        body.extend_from_slice(b"\nab\n");
        body.extend(vec![b'y'; 3 * LINE_BYTES]);
        body.extend_from_slice(b"\ncd\n");
        body.extend(vec![b'z'; LINE_BYTES + 1]);
        for piece in [1 << 10, 1 << 16, 1 << 20, 1 << 30] {
            let pieces = body.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
            let long = |number| Err((number, "too_large".to_owned()));
            let want = [Ok((1, LINE_BYTES)), Ok((2, 2)), long(3), Ok((4, 2)), long(5)];
            assert_eq!(read(pieces).await, want, "in pieces of {piece}");
        }
    }

    #[actix_web::test]
    async fn blanks_make_a_line_too_long_like_anything_else() {
        let blanks = [b'x'].into_iter().chain([b' '; LINE_BYTES]).collect::<Vec<u8>>();
        let mut body = [&blanks[..LINE_BYTES], b"\r\nab\n", &blanks, b"\ncd\n"].concat();
        body.extend_from_slice(&blanks);
        for piece in [1 << 10, 1 << 16, 1 << 30] {
            let pieces = body.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
            let long = |number| Err((number, "too_large".to_owned()));
            assert_eq!(read(pieces).await, [Ok((1, 1)), Ok((2, 2)), long(3), Ok((4, 2)), long(5)], "{piece}");
        }
    }

    #[actix_web::test]
    async fn a_body_that_breaks_off_makes_nothing_of_its_last_line() {
        let pieces = vec![Ok(Bytes::from_static(b"ab\ncd")), Err(())];
        assert_eq!(read(pieces).await, [Ok((1, 2)), Err((2, "invalid_json".to_owned()))]);
    }
}
