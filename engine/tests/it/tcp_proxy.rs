//! A TCP proxy that cuts connections where it is told to.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

const UNLIMITED: i64 = i64::MAX;

/// What both directions of all connections look at.
struct Rules {
    target: AtomicU16,
    /// Nothing passes, in either direction, and nothing is closed.
    is_frozen: AtomicBool,
    /// How many more bytes of answers pass before the connection is cut.
    answers: AtomicI64,
    /// How many more bytes of requests pass before the client is cut off; the rest is kept for the server.
    requests: AtomicI64,
    cuts: AtomicUsize,
    /// What was kept, with the connections to the server over which it may still arrive.
    kept: Mutex<Vec<(TcpStream, Vec<u8>)>>,
}

impl Rules {
    fn wait_while_frozen(&self) {
        while self.is_frozen.load(SeqCst) {
            thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// Passes everything on to a port of this machine until told otherwise.
pub(crate) struct TcpProxy {
    port: u16,
    rules: Arc<Rules>,
}

impl TcpProxy {
    pub(crate) fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let rules = Arc::new(Rules {
            target: AtomicU16::new(target),
            is_frozen: AtomicBool::new(false),
            answers: AtomicI64::new(UNLIMITED),
            requests: AtomicI64::new(UNLIMITED),
            cuts: AtomicUsize::new(0),
            kept: Mutex::new(Vec::new()),
        });
        let shared = Arc::clone(&rules);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                serve(&shared, client);
            }
        });
        Self { port, rules }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Cuts the connection once so many more bytes of answers have passed; later connections are left alone.
    pub(crate) fn cut_answers_after(&self, bytes: i64) {
        self.rules.answers.store(bytes, SeqCst);
    }

    /// Cuts the client off once so many more bytes of requests have passed. What it had sent beyond that stays under
    /// way to the server, over a connection that the server still holds.
    pub(crate) fn hold_requests_after(&self, bytes: i64) {
        self.rules.requests.store(bytes, SeqCst);
    }

    /// Later connections go to another port of this machine.
    pub(crate) fn point_to(&self, target: u16) {
        self.rules.target.store(target, SeqCst);
    }

    /// Lets nothing pass until told otherwise; connections stay open.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        self.rules.is_frozen.store(is_frozen, SeqCst);
    }

    /// Cuts nothing any more.
    pub(crate) fn calm(&self) {
        self.rules.answers.store(UNLIMITED, SeqCst);
        self.rules.requests.store(UNLIMITED, SeqCst);
    }

    pub(crate) fn cuts(&self) -> usize {
        self.rules.cuts.load(SeqCst)
    }

    /// Lets everything that was kept arrive at last, and returns when the server has done with it; tells how many bytes
    /// that were.
    pub(crate) fn deliver_kept(&self) -> usize {
        let mut delivered = 0;
        for (mut server, bytes) in self.rules.kept.lock().unwrap().drain(..) {
            // The server may have closed it: that is one of the two things that keep late entries out.
            let _ = server.write_all(&bytes);
            let _ = server.shutdown(Shutdown::Write);
            let _ = server.read_to_end(&mut Vec::new());
            delivered += bytes.len();
        }
        delivered
    }
}

fn serve(rules: &Arc<Rules>, client: TcpStream) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", rules.target.load(SeqCst))) else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (client_in, server_in) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let shared = Arc::clone(rules);
    thread::spawn(move || requests(&shared, client_in, server_in));
    let shared = Arc::clone(rules);
    thread::spawn(move || answers(&shared, server, client));
}

/// Takes from a budget; gives back how much of `wanted` may pass, and whether that was the last.
fn spend(budget: &AtomicI64, wanted: usize) -> (usize, bool) {
    let wanted = i64::try_from(wanted).unwrap();
    let before = budget.load(SeqCst);
    if before == UNLIMITED || before >= wanted {
        if before != UNLIMITED {
            budget.fetch_sub(wanted, SeqCst);
        }
        return (usize::try_from(wanted).unwrap(), false);
    }
    budget.store(UNLIMITED, SeqCst);
    (usize::try_from(before).unwrap(), true)
}

fn answers(rules: &Rules, mut server: TcpStream, mut client: TcpStream) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        rules.wait_while_frozen();
        let (passes, cut) = spend(&rules.answers, length);
        if client.write_all(&buffer[..passes]).is_err() || cut {
            if cut {
                rules.cuts.fetch_add(1, SeqCst);
            }
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

fn requests(rules: &Rules, mut client: TcpStream, mut server: TcpStream) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        rules.wait_while_frozen();
        let (passes, cut) = spend(&rules.requests, length);
        if server.write_all(&buffer[..passes]).is_err() {
            break;
        }
        if cut {
            let mut kept = buffer[passes..length].to_vec();
            // What the client has written so far is under way; then it learns that the connection is gone.
            client.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
            let _ = client.read_to_end(&mut kept);
            rules.kept.lock().unwrap().push((server, kept));
            rules.cuts.fetch_add(1, SeqCst);
            let _ = client.shutdown(Shutdown::Both);
            return;
        }
    }
    let _ = server.shutdown(Shutdown::Write);
}
