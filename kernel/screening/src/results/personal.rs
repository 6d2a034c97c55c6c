//! Personal data: what has a checksum or a form of its own.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

use super::findings::FindingKind;
use super::matches::Matches;

/// A kind of personal data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonalKind {
    /// E-mail addresses.
    Email,
    /// Telephone numbers: international ones, and those of North America.
    Phone,
    /// Numbers of payment cards, by issuer, length and the Luhn checksum.
    Card,
    /// International bank account numbers, by country, length and checksum.
    Iban,
    /// Social security numbers of the US, with hyphens.
    Ssn,
    /// IP addresses, except of this machine.
    Ip,
}

impl PersonalKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Email,
        Self::Phone,
        Self::Card,
        Self::Iban,
        Self::Ssn,
        Self::Ip,
    ];
    /// Those that hardly anything else looks like, and that agents hardly need.
    pub const CHECKED: [Self; 3] = [Self::Card, Self::Iban, Self::Ssn];

    /// The word in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.finding().as_str()
    }

    fn finding(self) -> FindingKind {
        match self {
            Self::Email => FindingKind::Email,
            Self::Phone => FindingKind::Phone,
            Self::Card => FindingKind::Card,
            Self::Iban => FindingKind::Iban,
            Self::Ssn => FindingKind::Ssn,
            Self::Ip => FindingKind::Ip,
        }
    }

    /// Finds data of this kind in a unit of text.
    pub(super) fn find(self, unit: &str, found: &mut Matches) {
        match self {
            Self::Email => find_emails(unit, found),
            Self::Phone => find_phones(unit, found),
            Self::Card => find_cards(unit, found),
            Self::Iban => find_ibans(unit, found),
            Self::Ssn => find_ssns(unit, found),
            Self::Ip => find_addresses(unit, found),
        }
    }
}

static EMAIL: LazyLock<Regex> = LazyLock::new(|| {
    literal(
        r"[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}\b",
    )
});
static PHONE: LazyLock<Regex> = LazyLock::new(|| {
    literal(
        r"\+[1-9](?:[ .()/-]{0,2}[0-9]){7,14}|(?:\([2-9][0-9]{2}\) ?|\b(?:1[ .-])?[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-][0-9]{4}",
    )
});
static CARD: LazyLock<Regex> = LazyLock::new(|| {
    // Spaces and hyphens that do not break a line as well.
    let pattern =
        r"[0-9]{13,19}|[0-9]{4}(?:S[0-9]{4}){3}(?:S[0-9]{1,3})?|[0-9]{4}S[0-9]{6}S[0-9]{4,5}";
    literal(&pattern.replace('S', r"[ .\x{a0}\x{202f}\x{2011}-]"))
});
static SSN: LazyLock<Regex> = LazyLock::new(|| literal(r"[0-9]{3}-[0-9]{2}-[0-9]{4}"));
static IPV4: LazyLock<Regex> = LazyLock::new(|| literal(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}"));

fn literal(pattern: &str) -> Regex {
    let pattern = pattern.replace(r"\b", r"(?-u:\b)");
    Regex::new(&pattern).expect("the pattern is a literal")
}

fn find_emails(unit: &str, found: &mut Matches) {
    for at in EMAIL.find_iter(unit).filter(|_| unit.contains('@')) {
        // An address of a repository over SSH, not of a person.
        let is_repository = at.as_str().starts_with("git@");
        if !is_repository {
            found.add(at.range(), FindingKind::Email);
        }
    }
}

fn find_phones(unit: &str, found: &mut Matches) {
    for at in PHONE.find_iter(unit) {
        let has_neighbour = unit[at.end()..].starts_with(|c: char| c.is_ascii_alphanumeric())
            || unit[..at.start()].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '.');
        if !has_neighbour {
            found.add(at.range(), FindingKind::Phone);
        }
    }
}

/// Whether digits stand alone: not in a longer number, a decimal fraction, an identifier or a UUID.
fn stands_alone(unit: &str, start: usize, end: usize) -> bool {
    let joins = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let before = unit[..start].chars().next_back();
    let mut after = unit[end..].chars();
    let ends = match after.next() {
        Some('.') => !after.next().is_some_and(|c| c.is_ascii_digit()),
        Some(c) => !joins(c),
        None => true,
    };
    ends && !before.is_some_and(|c| joins(c) || c == '.')
}

fn find_cards(unit: &str, found: &mut Matches) {
    let mut from = 0;
    while let Some(at) = CARD.find_at(unit, from) {
        from = at.end();
        let text = at.as_str();
        // A telephone number.
        if unit[..at.start()].ends_with('+') {
            continue;
        }
        // What looks like a fifth group may be another number.
        let short = text
            .char_indices()
            .nth(19)
            .map_or(text, |(end, _)| &text[..end]);
        for text in [text, short] {
            let end = at.start() + text.len();
            if stands_alone(unit, at.start(), end) && is_card(text) {
                found.add(at.start()..end, FindingKind::Card);
                break;
            }
        }
    }
}

/// Whether an issuer has numbers of this form, and the checksum holds.
fn is_card(text: &str) -> bool {
    let digits: Vec<u8> = text
        .bytes()
        .filter(u8::is_ascii_digit)
        .map(|digit| digit - b'0')
        .collect();
    let prefix = |len: usize| {
        let head = digits.iter().take(len);
        head.fold(0_u32, |number, digit| number * 10 + u32::from(*digit))
    };
    let is_issued = match (prefix(1), digits.len()) {
        (4, 13 | 16 | 19) => true,
        (5, 16) => (51..=55).contains(&prefix(2)),
        (2, 16) => (2221..=2720).contains(&prefix(4)),
        (3, 15) => matches!(prefix(2), 34 | 37),
        (3, 14) => matches!(prefix(2), 30 | 36 | 38 | 39),
        (3, 16..=19) => (3528..=3589).contains(&prefix(4)),
        (6, 16..=19) => prefix(4) == 6011 || prefix(2) == 62 || matches!(prefix(2), 64 | 65),
        _ => false,
    };
    is_issued && has_luhn_checksum(&digits)
}

fn has_luhn_checksum(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(
            |(place, digit)| match u32::from(*digit) * (1 + place as u32 % 2) {
                two if two > 9 => two - 9,
                one => one,
            },
        )
        .sum();
    sum.is_multiple_of(10)
}

/// The lengths of the registry of SWIFT, by country.
const IBAN_LENGTHS: &str = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 \
    DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 \
    KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 \
    PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 \
    VG24 XK20 YE30";

fn iban_length(country: &str) -> Option<usize> {
    let mut all = IBAN_LENGTHS.split_ascii_whitespace();
    all.find_map(|entry| entry.strip_prefix(country)?.parse().ok())
}

fn find_ibans(unit: &str, found: &mut Matches) {
    let bytes = unit.as_bytes();
    let mut at = 0;
    while at + 4 <= bytes.len() {
        let begins = bytes[at..at + 2].iter().all(u8::is_ascii_uppercase)
            && bytes[at + 2..at + 4].iter().all(u8::is_ascii_digit)
            && !(at > 0 && bytes[at - 1].is_ascii_alphanumeric());
        let end = begins.then(|| iban_end(unit, at)).flatten();
        if let Some(end) = end {
            found.add(at..end, FindingKind::Iban);
        }
        at = end.unwrap_or(at + 1);
    }
}

/// The end of the account number that starts here, if it is one. Groups may be separated by one space each.
fn iban_end(unit: &str, start: usize) -> Option<usize> {
    let bytes = unit.as_bytes();
    let length = iban_length(&unit[start..start + 2])?;
    let mut signs = Vec::with_capacity(length);
    let mut at = start;
    while signs.len() < length {
        match bytes.get(at)? {
            b' ' if at > start && bytes[at - 1] != b' ' => {}
            sign if sign.is_ascii_digit() || sign.is_ascii_uppercase() => signs.push(*sign),
            _ => return None,
        }
        at += 1;
    }
    if bytes.get(at).is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    // ISO 13616: the first four signs last, letters as numbers from 10, modulo 97.
    let rest = signs[4..].iter().chain(&signs[..4]);
    let remainder = rest.fold(0_u32, |sum, sign| match sign {
        b'0'..=b'9' => (sum * 10 + u32::from(sign - b'0')) % 97,
        letter => (sum * 100 + u32::from(letter - b'A') + 10) % 97,
    });
    (remainder == 1).then_some(at)
}

fn find_ssns(unit: &str, found: &mut Matches) {
    for at in SSN.find_iter(unit) {
        let parts: Vec<&str> = at.as_str().split('-').collect();
        // Never issued (SSA, since 2011).
        let is_issued = !matches!(parts[0], "000" | "666")
            && !parts[0].starts_with('9')
            && parts[1] != "00"
            && parts[2] != "0000";
        if is_issued && stands_alone(unit, at.start(), at.end()) {
            found.add(at.range(), FindingKind::Ssn);
        }
    }
}

fn find_addresses(unit: &str, found: &mut Matches) {
    for at in IPV4.find_iter(unit) {
        let address: Option<Ipv4Addr> = at.as_str().parse().ok();
        let is_own = |address: Ipv4Addr| {
            address.is_loopback() || address.is_unspecified() || address.is_broadcast()
        };
        if address.is_some_and(|address| !is_own(address))
            && stands_alone(unit, at.start(), at.end())
            && !unit[..at.start()].ends_with('v')
        {
            found.add(at.range(), FindingKind::Ip);
        }
    }
    let is_sign = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let bytes = unit.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let len = bytes[at..].iter().take_while(|byte| is_sign(byte)).count();
        if len > 0 {
            let run = unit[at..at + len].trim_end_matches(['.', ':']);
            let run = match unit[at..at + len].ends_with("::") {
                true if run.len() + 2 <= len => &unit[at..at + run.len() + 2],
                _ => run,
            };
            let is_word =
                |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
            let apart = !is_word(unit[..at].chars().next_back())
                && !is_word(unit[at + len..].chars().next());
            if apart && is_ipv6(run) {
                found.add(at..at + run.len(), FindingKind::Ip);
            }
        }
        at += len.max(1);
    }
}

/// Whether this is an address, not a time or the path of a name in code.
fn is_ipv6(run: &str) -> bool {
    let has_digit = run.bytes().any(|byte| byte.is_ascii_digit());
    has_digit
        && run.matches(':').count() >= 2
        && run
            .parse::<Ipv6Addr>()
            .is_ok_and(|address| !address.is_loopback() && !address.is_unspecified())
}
