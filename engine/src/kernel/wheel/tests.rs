//! Does the wheel keep its promises? Stories with exact outputs, and scripts against the model.

use proptest::prelude::*;

use super::*;

const START: UnixMs = UnixMs(1_793_511_000_000);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn the_wheel_equals_a_sorted_map(script in prop::collection::vec(any::<u8>(), 0..600)) {
        check_against_model(&script);
    }
}
