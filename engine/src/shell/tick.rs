//! Placeholder of the tick source.
use crate::kernel::time::UnixMs;
use std::{cell::Cell, io, time::Duration};
pub(super) struct Tick {
    at: Cell<Option<tokio::time::Instant>>,
    armed: tokio::sync::Notify,
}
impl Tick {
    pub(super) fn realtime() -> io::Result<Self> {
        Ok(Self { at: Cell::new(None), armed: tokio::sync::Notify::new() })
    }
    pub(super) fn elapsed() -> io::Result<Self> {
        Self::realtime()
    }
    pub(super) fn arm_at(&self, at: UnixMs) {
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
        self.arm_after(Duration::from_millis((at.0 - now).max(0) as u64));
    }
    pub(super) fn arm_after(&self, d: Duration) {
        self.at.set(Some(tokio::time::Instant::now() + d));
        self.armed.notify_one();
    }
    pub(super) async fn fired(&self) {
        loop {
            match self.at.get() {
                Some(at) => {
                    tokio::select! { () = tokio::time::sleep_until(at) => { if self.at.get() == Some(at) { self.at.set(None); return; } } () = self.armed.notified() => {} }
                }
                None => self.armed.notified().await,
            }
        }
    }
}
