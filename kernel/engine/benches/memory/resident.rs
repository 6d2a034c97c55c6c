//! What this process holds in memory.

/// Bytes of this process that are in memory now.
pub(crate) fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).expect("the second number");
    pages.parse::<u64>().expect("a number") * 4096
}
