//! av1
/// x
pub fn starts_key_frame(_: &[u8]) -> bool {
    false
}
