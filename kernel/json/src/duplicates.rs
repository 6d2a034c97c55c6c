//! Finds duplicate names in an object: readers differ on which value counts.

/// Up to this many names are compared pairwise; more are sorted.
const LINEAR_SCAN_MAX: usize = 16;

/// A duplicate name. Sorts the names if there are many.
pub fn find_duplicate<N: AsRef<str> + Ord>(names: &mut [N]) -> Option<&str> {
    let duplicate = if names.len() <= LINEAR_SCAN_MAX {
        (1..names.len()).find(|nth| names[..*nth].contains(&names[*nth]))
    } else {
        names.sort_unstable();
        (1..names.len()).find(|nth| names[nth - 1] == names[*nth])
    };
    duplicate.map(|nth| names[nth].as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_twice_among_few_and_many() {
        for count in [2, 16, 17, 40] {
            let mut names: Vec<String> = (0..count).map(|n| format!("{n:02}")).rev().collect();
            assert_eq!(find_duplicate(&mut names), None, "{count}");
            names[0] = "01".into();
            assert_eq!(find_duplicate(&mut names), (count > 2).then_some("01"));
        }
        assert_eq!(find_duplicate(&mut ["a", "a"]), Some("a"));
        assert_eq!(find_duplicate::<&str>(&mut []), None);
    }
}
