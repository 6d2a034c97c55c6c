//! Ids of requirements in a line of text: `MGP-071`, `MGP-131, 132`, `MGP-122..130`.

use std::ops::RangeInclusive;

/// All ids in the line.
pub(super) fn parse_ids(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find('-') {
        let head = rest[..at].rfind(|c: char| !c.is_ascii_uppercase());
        let family = &rest[head.map_or(0, |c| {
            c + rest[c..].chars().next().map_or(1, char::len_utf8)
        })..at];
        rest = &rest[at + 1..];
        // Readings such as `A-02` are no requirements.
        if family.len() < 3 {
            continue;
        }
        while let Some((numbers, after)) = parse_range(rest, family) {
            found.extend(numbers.map(|number| format!("{family}-{number:03}")));
            match next_listed(after, family) {
                Some(next) => rest = next,
                None => {
                    rest = after;
                    break;
                }
            }
        }
    }
    found
}

/// A number or a range, and the text after it.
fn parse_range<'a>(text: &'a str, family: &str) -> Option<(RangeInclusive<u16>, &'a str)> {
    let (first, rest) = parse_number(text)?;
    let Some(last) = rest.strip_prefix("..") else {
        return Some((first..=first, rest));
    };
    let last = last.trim_start_matches('=').trim_start_matches(family);
    let (last, rest) = parse_number(last.trim_start_matches('-'))?;
    Some((first..=last, rest))
}

/// Exactly three digits.
fn parse_number(text: &str) -> Option<(u16, &str)> {
    let (digits, rest) = text.split_at_checked(3)?;
    let whole = digits.bytes().all(|b| b.is_ascii_digit());
    let over = rest.starts_with(|c: char| c.is_ascii_alphanumeric());
    let number = digits.parse().ok().filter(|_| whole && !over)?;
    Some((number, rest))
}

/// The next bare number of a list: `, 132` or ` and 132` before punctuation or the end, so that `MGP-132, 500 tools`
/// names one row.
fn next_listed<'a>(text: &'a str, family: &str) -> Option<&'a str> {
    let next = [", ", " and ", "/"]
        .into_iter()
        .find_map(|by| text.strip_prefix(by))?;
    let (_, after) = parse_range(next, family)?;
    let ends = after.is_empty() || after.starts_with([',', ':', ';', ')', '.', '/']);
    (ends || after.starts_with(" and ")).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_alone_in_lists_and_in_ranges() {
        let named = |line: &str| parse_ids(line).join(" ");
        assert_eq!(named("MGP-071: a grant"), "MGP-071");
        assert_eq!(named("MGP-131, MGP-132: a ping"), "MGP-131 MGP-132");
        assert_eq!(
            named("MGP-131, 132 and 134: a ping"),
            "MGP-131 MGP-132 MGP-134"
        );
        assert_eq!(
            named("MGP-122..124, A-06: steps"),
            "MGP-122 MGP-123 MGP-124"
        );
        assert_eq!(named("MGP-122..MGP-123, 130."), "MGP-122 MGP-123 MGP-130");
        assert_eq!(named("„MGP-058“, (PRJ-009)"), "MGP-058 PRJ-009");
        assert_eq!(named("MGP-132, 500 tools in 100 ms"), "MGP-132");
        assert_eq!(named("MGP-1, MGP-1234, XMGP-, 2026-07-28, A-02"), "");
    }
}
