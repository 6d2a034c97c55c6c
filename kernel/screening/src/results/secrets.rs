//! The usual formats of keys and tokens.

use std::sync::LazyLock;

use regex::Regex;

use super::findings::FindingKind;
use super::matches::Matches;
use crate::masks::{is_secret_key, normalize_key};

/// The first words of a private key in PEM.
pub(super) const PEM_BEGIN: &str = "-----BEGIN ";
/// The end of a header of PEM.
const PEM_DASHES: &str = "-----";
/// Before the last line of PEM.
const PEM_END: &str = "-----END ";
/// Longest label of PEM, in bytes.
const PEM_LABEL_MAX: usize = 64;

/// The groups of the pattern below, by name.
const GROUPS: [(&str, FindingKind); 9] = [
    ("bearer", FindingKind::Bearer),
    ("jwt", FindingKind::Jwt),
    ("aws", FindingKind::Aws),
    ("github", FindingKind::GitHub),
    ("slack", FindingKind::Slack),
    ("anthropic", FindingKind::Anthropic),
    ("openai", FindingKind::OpenAi),
    ("google", FindingKind::Google),
    ("stripe", FindingKind::Stripe),
];

/// Each format as its issuer documents it: a prefix, an alphabet and a length.
pub(super) static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    let parts = [
        r"\b[Bb][Ee][Aa][Rr][Ee][Rr]:?[ \t]{1,8}(?P<bearer>[A-Za-z0-9._~+/=-]{8,})",
        r"\b(?P<jwt>eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,3})",
        r"\b(?P<aws>(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16})\b",
        r"(?i:secret_?access_?key)[ \t=:]{1,8}(?P<aws2>[A-Za-z0-9/+]{40})(?:$|[^A-Za-z0-9/+=])",
        r"\b(?P<github>gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})\b",
        r"\b(?P<slack>xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,255}|xapp-[0-9]-[A-Za-z0-9-]{10,255})",
        r"(?P<slack2>hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,255})",
        r"\b(?P<anthropic>sk-ant-[A-Za-z0-9_-]{20,255})",
        r"\b(?P<openai>sk-(?:proj-|svcacct-|admin-|None-)?[A-Za-z0-9_-]{20,255})",
        r"\b(?P<google>AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,1024}|GOCSPX-[A-Za-z0-9_-]{28})(?:$|[^A-Za-z0-9_-])",
        r"\b(?P<stripe>(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,255}|whsec_[A-Za-z0-9+/]{24,255})",
    ];
    // A word of ASCII.
    let all = parts.join("|").replace(r"\b", r"(?-u:\b)");
    Regex::new(&all).expect("the pattern is a literal")
});

/// Shorter words after `Bearer` are credentials only with a digit: "bearer certificates" are none.
const UNDIGITED_BEARER_MIN: usize = 24;

/// Finds keys and tokens in a unit of text.
pub(super) fn find_tokens(unit: &str, found: &mut Matches) {
    let mut from = 0;
    while let Some(token) = TOKENS.captures_at(unit, from) {
        let whole = token.get(0).expect("a match is whole").range();
        let named = |name: &str| token.name(name).map(|part| part.range());
        let group = GROUPS.iter().find_map(|(name, kind)| {
            let second = match *name {
                "aws" => named("aws2"),
                "slack" => named("slack2"),
                _ => None,
            };
            Some((named(name).or(second)?, *kind))
        });
        from = whole.end.max(from + 1);
        if let Some((part, kind)) = group {
            from = part.end;
            if is_credential(&unit[part.clone()], kind) {
                found.add(part, kind);
            }
        }
    }
}

/// Words with hyphens look like some keys: those have digits.
fn is_credential(text: &str, kind: FindingKind) -> bool {
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    has_digit || kind == FindingKind::Bearer && text.len() >= UNDIGITED_BEARER_MIN
}

/// Finds private keys in a unit of text. One without an end extends to the end of the unit.
pub(super) fn find_private_keys(unit: &str, found: &mut Matches) {
    let mut from = 0;
    while let Some(at) = unit[from..].find(PEM_BEGIN) {
        let begin = from + at;
        from = begin + PEM_BEGIN.len();
        if let PemState::Key { end, .. } = pem_state(&unit[begin..]) {
            let end = end.map_or(unit.len(), |end| begin + end);
            found.add(begin..end, FindingKind::PrivateKey);
            from = end;
        }
    }
}

/// How far a text that starts with [`PEM_BEGIN`] got.
enum PemState {
    /// Its label is not complete.
    Label,
    /// It is no private key.
    Other,
    /// It is one, and its end if that is there.
    Key { end: Option<usize> },
}

fn pem_state(text: &str) -> PemState {
    let label = &text[PEM_BEGIN.len()..];
    let Some(label_len) = label.find(PEM_DASHES) else {
        return match label.len() < PEM_LABEL_MAX && !label.contains('\n') {
            true => PemState::Label,
            false => PemState::Other,
        };
    };
    if label_len > PEM_LABEL_MAX || !label[..label_len].ends_with("PRIVATE KEY") {
        return PemState::Other;
    }
    let body = PEM_BEGIN.len() + label_len + PEM_DASHES.len();
    let end = text[body..].find(PEM_END).and_then(|at| {
        let last = body + at + PEM_END.len();
        let dashes = text[last..].find(PEM_DASHES)?;
        Some(last + dashes + PEM_DASHES.len())
    });
    PemState::Key { end }
}

/// Whether a private key began in this unit and may go on.
pub(super) fn has_open_private_key(unit: &str) -> bool {
    let Some(begin) = unit.rfind(PEM_BEGIN.trim_end()) else {
        return false;
    };
    let rest = &unit[begin..];
    if rest.len() < PEM_BEGIN.len() {
        return true;
    }
    if !rest.starts_with(PEM_BEGIN) {
        return false;
    }
    match pem_state(rest) {
        PemState::Label | PemState::Key { end: None } => true,
        PemState::Other | PemState::Key { end: Some(_) } => false,
    }
}

/// Whether the last word of this unit announces a credential.
pub(super) fn announces_credential(unit: &str) -> bool {
    const WORDS: [&str; 3] = ["bearer", "secret_access_key", "secretaccesskey"];
    const SPACES_MAX: usize = 8;
    let words = unit.trim_end_matches([' ', '\t', '=', ':']);
    if unit.len() - words.len() > SPACES_MAX {
        return false;
    }
    let bytes = words.as_bytes();
    WORDS.iter().any(|word| {
        let start = bytes.len().checked_sub(word.len());
        start.is_some_and(|start| bytes[start..].eq_ignore_ascii_case(word.as_bytes()))
    })
}

/// Whether the name of a member says that its value is a secret: as in records, but for tokens that continue a list
/// or count something, which the client needs.
pub(super) fn is_secret_name(name: &str) -> bool {
    const TOKENS: [&str; 9] = [
        "access", "refresh", "auth", "bearer", "api", "session", "secret", "private", "bot",
    ];
    let name = normalize_key(name);
    if !is_secret_key(&name) {
        return false;
    }
    let without = name.replace("token", "");
    is_secret_key(&without)
        || name == "token"
        || name == "idtoken"
        || !name.ends_with("tokens") && TOKENS.iter().any(|word| without.contains(word))
}
