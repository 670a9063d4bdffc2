//! Bytes read as choices.

/// A script: where it ends, every choice is 0.
pub(super) struct Script<'a> {
    bytes: &'a [u8],
}

impl<'a> Script<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.bytes.split_off_first().copied().unwrap_or(0)
    }

    /// A number below `bound`, which is at most 65,536.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let number = usize::from(self.byte());
        let number = if bound > 256 { number << 8 | usize::from(self.byte()) } else { number };
        number % bound.max(1)
    }

    pub(super) fn chance(&mut self, in_256: u8) -> bool {
        self.byte() > 255 - in_256
    }

    /// A stretch of time: mostly near a second, now and then hours or days.
    pub(super) fn span_ms(&mut self) -> i64 {
        let (base_ms, steps) = match self.byte() {
            0..60 => (1, 50),
            60..150 => (10, 200),
            150..210 => (100, 200),
            210..240 => (10_000, 30),
            240..252 => (600_000, 20),
            252..=255 => (7_200_000, 40),
        };
        base_ms * i64::try_from(self.below(steps)).expect("a few hundred") + i64::from(self.byte() % 3)
    }
}

/// The script of a seed: splitmix64.
pub(super) fn grow(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    let length = 20 + draw() % 100;
    (0..length).flat_map(|_| draw().to_le_bytes()).collect()
}
