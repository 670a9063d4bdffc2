//! A server that answers what it was told to, and remembers what it was asked.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread::JoinHandle,
};

use serde_json::Value;

/// A request as it came in.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Method and target: `PUT /v1/queues/mail`.
    pub(crate) line: String,
    /// The headers, in small letters.
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// The server. It takes as many requests as it has answers.
pub(crate) struct Canned {
    pub(crate) url: String,
    thread: JoinHandle<Vec<Asked>>,
}

impl Canned {
    /// Answers with these statuses and bodies, in order.
    pub(crate) fn answering(answers: &[(u16, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers: Vec<(u16, String)> = answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
        let thread = std::thread::spawn(move || {
            let answer = |(status, body): (u16, String)| {
                let (mut stream, _) = listener.accept().unwrap();
                let asked = read(&mut BufReader::new(stream.try_clone().unwrap()));
                let length = body.len();
                let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
                stream.write_all((head + &body).as_bytes()).unwrap();
                asked
            };
            answers.into_iter().map(answer).collect()
        });
        Self { url, thread }
    }

    /// What was asked, once all answers are given.
    pub(crate) fn asked(self) -> Vec<Asked> {
        self.thread.join().unwrap()
    }
}

fn read(stream: &mut impl BufRead) -> Asked {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers: Vec<String> = lines[1..].iter().map(|line| line.to_ascii_lowercase()).collect();
    let length = headers.iter().find_map(|header| header.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).unwrap();
    let line = lines[0].trim_end_matches(" HTTP/1.1").to_owned();
    Asked { line, headers, body: String::from_utf8(body).unwrap() }
}
