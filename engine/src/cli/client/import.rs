//! `countwheel schedule import`: a file of specs, a line each, and what became of each of them.
//!
//! The file goes to the server in batches, each answered before the next is sent: neither side has to hold it all, and
//! what was answered is known even if the server goes away in the middle.

use std::{
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::Path,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use ureq::http::Method;

use super::{
    error::{ClientError, line_of},
    http::{Ask, Client},
    print,
};
use crate::cli::report::note;

/// A batch has at most so many lines ...
const BATCH_LINES: usize = 500;
/// ... and about so many bytes.
const BATCH_BYTES: usize = 1 << 20;
/// The longest line that a server takes.
const MAX_LINE_BYTES: usize = 256 << 10;

/// Lines that are sent together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each of them stands in the file.
    numbers: Vec<u64>,
}

/// What became of the lines so far.
#[derive(Default)]
struct Tally {
    made: u64,
    unchanged: u64,
    refused: u64,
}

impl Tally {
    fn lines(&self) -> u64 {
        self.made + self.unchanged + self.refused
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} made, {} unchanged, {} refused", self.made, self.unchanged, self.refused)
    }
}

/// Imports `file`, or standard input for `-`. With `json` the server's lines go to stdout, the summary to stderr.
pub(super) fn run(client: &Client, file: &Path, json: bool) -> Result<(), ClientError> {
    let name = if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
    let usage = |error: io::Error| ClientError::Usage(format!("{name}: {error}: name a file of JSON lines, or -"));
    let (mut input, length): (Box<dyn BufRead>, Option<u64>) = if file == Path::new("-") {
        (Box::new(io::stdin().lock()), None)
    } else {
        let file = File::open(file).map_err(usage)?;
        let about = file.metadata().map_err(usage)?;
        (Box::new(BufReader::new(file)), about.is_file().then_some(about.len()))
    };
    let bar = bar(length);
    let mut import = Import { client, json, tally: Tally::default(), last_line: 0, bar };
    let done = import.all(&mut *input, &name);
    import.bar.finish_and_clear();
    if json {
        note(&import.tally)
    } else {
        print(&format!("{}\n", import.tally))?
    }
    done?;
    match import.tally.refused {
        0 => Ok(()),
        refused => Err(ClientError::Import { refused, lines: import.tally.lines() }),
    }
}

/// On a terminal a bar, or a count where the length is not known; nothing in a pipe.
fn bar(length: Option<u64>) -> ProgressBar {
    const STYLE: &str = "{bar:40} {bytes}/{total_bytes} {msg} ({eta} left)";
    const OPEN_STYLE: &str = "{spinner} {bytes} {msg}";
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let style = ProgressStyle::with_template(if length.is_some() { STYLE } else { OPEN_STYLE });
    bar.set_style(style.expect("the templates are fixed"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

struct Import<'a> {
    client: &'a Client,
    json: bool,
    tally: Tally,
    /// The last line of the file that has been answered.
    last_line: u64,
    bar: ProgressBar,
}

impl Import<'_> {
    fn all(&mut self, input: &mut dyn BufRead, name: &str) -> Result<(), ClientError> {
        let (mut batch, mut number, mut line) = (Batch::default(), 0_u64, Vec::new());
        loop {
            line.clear();
            let read = (&mut *input).take(MAX_LINE_BYTES as u64 + 2).read_until(b'\n', &mut line);
            let read = read.map_err(|source| ClientError::Input { name: name.to_owned(), source })?;
            if read == 0 {
                return self.send(&mut batch);
            }
            number += 1;
            let text = line.trim_ascii();
            if text.len() > MAX_LINE_BYTES {
                self.send(&mut batch)?;
                self.skip_rest(input, name, line.ends_with(b"\n"))?;
                self.refuse(number, &format!("longer than {MAX_LINE_BYTES} bytes: shorten its payload"));
            } else if !text.is_empty() {
                batch.bytes.extend_from_slice(text);
                batch.bytes.push(b'\n');
                batch.numbers.push(number);
            }
            self.bar.inc(read as u64);
            if batch.numbers.len() >= BATCH_LINES || batch.bytes.len() >= BATCH_BYTES {
                self.send(&mut batch)?;
            }
        }
    }

    /// Reads to the end of a line that is too long to be kept.
    fn skip_rest(&self, input: &mut dyn BufRead, name: &str, is_whole: bool) -> Result<(), ClientError> {
        if is_whole {
            return Ok(());
        }
        let skipped = input.skip_until(b'\n').map_err(|source| ClientError::Input { name: name.to_owned(), source })?;
        self.bar.inc(skipped as u64);
        Ok(())
    }

    fn send(&mut self, batch: &mut Batch) -> Result<(), ClientError> {
        if batch.numbers.is_empty() {
            return Ok(());
        }
        let Batch { bytes, numbers } = std::mem::take(batch);
        let ask = Ask::new(Method::POST, "/v1/schedules/import").lines(bytes);
        let answers = self.client.ask_lines(&ask).map_err(|why| self.stopped(why))?;
        if answers.len() > numbers.len() {
            return Err(self.stopped(self.client.odd(200)));
        }
        let (sent, answered) = (numbers.len(), answers.len());
        for (number, answer) in numbers.into_iter().zip(answers) {
            self.count(number, answer)?;
            self.last_line = number;
        }
        if answered < sent {
            return Err(self.stopped(self.client.odd(200)));
        }
        self.bar.set_message(self.tally.to_string());
        Ok(())
    }

    /// Counts an answer. The server counts the lines of a batch: who reads the answers has the file before them.
    fn count(&mut self, number: u64, mut answer: Value) -> Result<(), ClientError> {
        if let Value::Object(fields) = &mut answer {
            fields.insert("line".to_owned(), number.into());
        }
        if self.json {
            self.bar.suspend(|| print(&format!("{answer}\n"))).map_err(|why| self.stopped(why))?;
        }
        if let Some(why) = line_of(&answer) {
            self.refuse(number, &why);
        } else if answer["status"] == "unchanged" {
            self.tally.unchanged += 1;
        } else {
            self.tally.made += 1;
        }
        Ok(())
    }

    fn refuse(&mut self, number: u64, why: &str) {
        self.tally.refused += 1;
        let why: String = why.chars().map(|c| if super::show::is_acted_on(c) { '?' } else { c }).collect();
        self.bar.suspend(|| note(format_args!("line {number}: {why}")));
    }

    fn stopped(&self, why: ClientError) -> ClientError {
        match (self.last_line, why) {
            (0, why) if !matches!(why, ClientError::ReaderGone) => why,
            (line, why) => ClientError::Stopped { line, why: Box::new(why) },
        }
    }
}
