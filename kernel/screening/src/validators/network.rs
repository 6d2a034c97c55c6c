//! `network_restricted`: no requests to this machine, its networks or metadata (MGP §4.5).
//!
//! URLs are searched in every text, at any depth. Parsers disagree about the host of a disguised URL, so
//! each candidate is checked, and one internal candidate is enough to reject.

use std::net::Ipv6Addr;

use url::Host;

use super::addresses;
use super::arguments::{ArgumentKind, CallArguments, Leaf};
use super::roles::Role;
use super::{ArgumentFinding, BlockedArgument, ScreenedCall, Validator, fast_path, normalization};

/// Schemes that open files, send raw bytes to other services, or run something.
const CLOSED_SCHEMES: [&str; 25] = [
    "chrome",
    "devtools",
    "edge",
    "view-source",
    "file",
    "gopher",
    "dict",
    "ldap",
    "ldaps",
    "tftp",
    "jar",
    "netdoc",
    "phar",
    "php",
    "expect",
    "smb",
    "cifs",
    "nfs",
    "telnet",
    "unix",
    "local_file",
    "mailslot",
    "afp",
    "zlib",
    "ogg",
];
/// Schemes whose URLs have a host after any number of slashes (WHATWG).
const SPECIAL: [&str; 5] = ["http", "https", "ws", "wss", "ftp"];

/// The longest part of a URL before its path, in bytes; names and passwords fit into a tenth of it.
const AUTHORITY_MAX: usize = 4_096;

const HINT: &str =
    "use a public address; a redirect to an inner one is refused when it is followed";

pub(super) fn check(_call: &ScreenedCall<'_>, args: &CallArguments) -> Result<(), BlockedArgument> {
    for leaf in &args.leaves {
        if let Some(finding) = check_leaf(leaf) {
            return Err(BlockedArgument::for_leaf(
                Validator::NetworkRestricted,
                leaf,
                finding,
            ));
        }
    }
    Ok(())
}

fn check_leaf(leaf: &Leaf) -> Option<ArgumentFinding> {
    let role = leaf.role;
    if leaf.kind == ArgumentKind::Number {
        return match role {
            Role::Host | Role::Url => check_host(&leaf.text, true),
            Role::Command | Role::Args => check_number(&leaf.text),
            Role::Path | Role::Sql | Role::Code | Role::Prose => None,
            Role::Method | Role::Mode | Role::Action | Role::Other => None,
        };
    }
    let role = if leaf.kind == ArgumentKind::Key {
        Role::Other
    } else {
        role
    };
    let special = matches!(role, Role::Url | Role::Host | Role::Command | Role::Args);
    if !special && is_harmless(&leaf.text) {
        return None;
    }
    check_in_detail(leaf, role)
}

/// Fast check: true if no rule matches a text without a special role.
fn is_harmless(text: &str) -> bool {
    let word = || fast_path::is_word(text) && addresses::internal_name_reason(text).is_none();
    fast_path::is_safe_for_network(text) || word() || fast_path::is_blob(text)
}

fn check_in_detail(leaf: &Leaf, role: Role) -> Option<ArgumentFinding> {
    let mut texts = normalization::decode_variants(&leaf.text);
    let last = texts.last().expect("a text has a plain form").clone();
    // URL parsers drop tabs and line breaks, and controls before the first letter.
    if !last.trim().contains(' ') && last.contains(['\t', '\r', '\n']) {
        texts.push(last.replace(['\t', '\r', '\n'], ""));
    }
    if matches!(role, Role::Command | Role::Args) && last.contains(['"', '\'', '\\']) {
        texts.push(last.replace(['"', '\'', '\\'], ""));
    }
    texts.iter().find_map(|text| check_text(text, role))
}

fn check_text(text: &str, role: Role) -> Option<ArgumentFinding> {
    let strict = matches!(role, Role::Url | Role::Host);
    // A client of the command line may expand patterns, too.
    check_urls(
        text,
        strict,
        strict || matches!(role, Role::Command | Role::Args),
    )
    .or_else(|| strict.then(|| check_address(text, role))?)
    .or_else(|| check_words(text, role))
    .or_else(|| check_settings(text))
    .or_else(|| (!matches!(role, Role::Prose | Role::Code)).then(|| check_sockets(text))?)
    .or_else(|| matches!(role, Role::Command | Role::Args).then(|| check_numbers(text))?)
}

/// Finds sockets of this machine: `/run/x.sock`, `--unix-socket`, and the shell's `/dev/tcp/host/port`.
fn check_sockets(text: &str) -> Option<ArgumentFinding> {
    let breaks = |c: char| c.is_whitespace() || "\"'=<>:,".contains(c);
    text.split(breaks).find_map(|word| {
        let is_socket = word.starts_with('/') && word.ends_with(".sock")
            || matches!(word, "--unix-socket" | "--abstract-unix-socket");
        if is_socket {
            let reason = format!("{word} is a socket of this machine");
            return Some(ArgumentFinding::new("inner_host", reason, HINT));
        }
        let device = ["/dev/tcp/", "/dev/udp/"];
        let rest = device.iter().find_map(|device| word.strip_prefix(device))?;
        check_host(rest.split('/').next()?, true)
    })
}

/// Checks settings like `host=localhost port=5432`, `Server=127.0.0.1;`.
fn check_settings(text: &str) -> Option<ArgumentFinding> {
    const NAMES: [&str; 8] = [
        "host",
        "hostname",
        "hostaddr",
        "server",
        "addr",
        "address",
        "ip",
        "data source",
    ];
    let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '&' | '?' | ',');
    text.match_indices('=').find_map(|(at, _)| {
        let before = &text[..at];
        let is_named = NAMES.iter().any(|name| {
            let start = at.checked_sub(name.len());
            let rest = start.and_then(|start| before.split_at_checked(start));
            rest.is_some_and(|(rest, key)| {
                key.eq_ignore_ascii_case(name) && (rest.is_empty() || rest.ends_with(ends))
            })
        });
        is_named.then(|| {
            // SQL Server: `tcp:host,port`, `host\instance`, and two names of this machine.
            let value = text[at + 1..].split(ends).next()?;
            let value = value.to_ascii_lowercase();
            let protocols = ["tcp:", "np:", "lpc:", "admin:"];
            let value = protocols
                .iter()
                .find_map(|name| value.strip_prefix(name))
                .unwrap_or(&value);
            match value.split('\\').next()? {
                "." | "(local)" | "(localdb)" => check_host("localhost", false),
                host => check_host(host, false),
            }
        })?
    })
}

/// Checks forms of hosts that only words of a command can have: `127.1`, one large number, a host behind the
/// letter of an option or a user's name, and the parts of `name:80:10.0.0.1`.
fn check_numbers(text: &str) -> Option<ArgumentFinding> {
    text.split(|c: char| c.is_whitespace() || c == '=')
        .find_map(|word| {
            let word = word.rsplit('@').next()?;
            // Only this machine has no name.
            if word.strip_prefix(':').is_some_and(is_port) {
                return check_host("localhost", true);
            }
            let fused = word.strip_prefix('-').map(|letters| {
                let is_letter = |c: char| c.is_ascii_alphabetic();
                let digits = letters.trim_start_matches(is_letter);
                let name = letters
                    .find("localhost")
                    .map_or(digits, |at| &letters[at..]);
                name.split('/').next().unwrap_or_default()
            });
            let host = fused.unwrap_or(word);
            if let Some(finding) = check_number(host) {
                return Some(finding);
            }
            if fused.is_some_and(|host| host.contains('.') || host.starts_with("localhost")) {
                return check_host(host, false);
            }
            let literal = word
                .find('[')
                .and_then(|from| word.get(from..=word.rfind(']')?));
            (word.matches(':').count() > 1 && !is_clock(word)).then(|| {
                // Behind a path and at the end, few numbers are the version of an image.
                let is_version = |(path, part): &(&str, &str)| {
                    let is_number = part.starts_with(|c: char| c.is_ascii_digit());
                    is_number && path.contains('/') && part.matches('.').count() < 3
                };
                let image = word.rsplit_once(':').filter(is_version);
                let parts = image.map_or(word, |(path, _)| path).split(':');
                let mut hosts = literal.into_iter().chain(parts);
                hosts.find_map(|part| check_host(part, false))
            })?
        })
}

/// True for `00:01:10.5`.
fn is_clock(word: &str) -> bool {
    let parts: Vec<&str> = word.split(':').collect();
    let digits = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    match parts.as_slice() {
        [hours, minutes, seconds] => {
            let seconds = seconds.replacen('.', "", 1);
            hours.len() == 2
                && minutes.len() == 2
                && [hours, minutes, &*seconds].into_iter().all(digits)
        }
        _ => false,
    }
}

/// Checks a number, short or long, with or without a port, that the C library reads as an address.
fn check_number(word: &str) -> Option<ArgumentFinding> {
    let (host, port) = word.split_once(':').unwrap_or((word, ""));
    let is_reached = is_port(port);
    let large = host
        .parse::<u64>()
        .is_ok_and(|n| n >= 1 << 24 || n == 0 && is_reached);
    let short = host.contains('.') && !host.starts_with("0.") && !host.ends_with('.');
    let hex = host.starts_with("0x") && host.contains('.');
    let is_number = large || short || hex;
    let is_address = is_number && !addresses::possible_v4_addresses(host).is_empty();
    (is_address && (port.is_empty() || is_reached)).then(|| check_host(host, true))?
}

/// True for a port, and what may follow it in a URL.
fn is_port(text: &str) -> bool {
    let digits = text.split('/').next().unwrap_or_default();
    !digits.is_empty() && digits.len() <= 5 && digits.bytes().all(|c| c.is_ascii_digit())
}

/// Checks each `scheme:` with slashes after it.
fn check_urls(text: &str, strict: bool, expands: bool) -> Option<ArgumentFinding> {
    let lead = text.len() - text.trim_start().len();
    for (at, _) in text.match_indices(':') {
        let scheme = scheme_before(&text[..at]);
        let rest = &text[at + 1..];
        if scheme.len() < 2 {
            continue;
        }
        let special = SPECIAL.contains(&scheme.as_str());
        let slashes = rest.chars().take_while(|c| matches!(c, '/' | '\\')).count();
        let starts = at - scheme.len() == lead;
        let closed = CLOSED_SCHEMES.contains(&scheme.as_str())
            || scheme.ends_with("+unix")
            || scheme.starts_with("unix+");
        if closed && (slashes >= 1 || strict && starts) {
            return Some(ArgumentFinding::new(
                "scheme",
                format!("{scheme}: reaches more than the network allows"),
                "use http or https",
            ));
        }
        if strict && starts && matches!(scheme.as_str(), "javascript" | "vbscript") {
            return Some(ArgumentFinding::new(
                "scheme",
                "the URL is a program",
                "use http or https",
            ));
        }
        let url = slashes >= 2 || special && (slashes == 1 || strict && starts);
        // After credentials or before a port, a word is a host in any scheme.
        let is_reached = || {
            let authority = rest[slashes..].split(['/', '\\', '?', '#']).next();
            strict && slashes >= 2 && authority.is_some_and(|a| a.contains(['@', ':']))
        };
        if url {
            let named = special || is_reached();
            let found = check_rest(&rest[slashes..], named, strict, expands);
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

fn scheme_before(text: &str) -> String {
    let wordy = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let start = text.rfind(|c| !wordy(c)).unwrap_or(0);
    let scheme = text[start..].trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    scheme.to_ascii_lowercase()
}

/// Checks all hosts that the text after the slashes may have.
fn check_rest(rest: &str, special: bool, strict: bool, expands: bool) -> Option<ArgumentFinding> {
    let ends = |c: char| {
        let quotes = matches!(c, '"' | '\'' | '`' | '<' | '>');
        !strict && (c.is_whitespace() || quotes)
    };
    // The text may be long, and have many URLs: only what may be the host is read.
    let until_slash = rest.split(|c| c == '/' || ends(c)).next()?;
    let first = until_slash.split(['\\', '?', '#']).next()?;
    let main = first.rsplit('@').next()?;
    // A client may take a missing host for this machine.
    let host = if special && main.strip_prefix(':').is_some_and(is_port) {
        "localhost"
    } else {
        main
    };
    if let Some(finding) = check_host(host, special && is_host(host)) {
        return Some(finding);
    }
    // Some clients expand one text to several URLs: `{a,b}`, `[1-9]`.
    let is_literal = parse_ipv6(without_port(main)).is_some();
    if expands && !is_literal && main.contains(['{', '}', '[', ']']) {
        let reason = format!("{main} is a pattern of hosts");
        return Some(ArgumentFinding::new("unreadable", reason, HINT));
    }
    if until_slash.len() > AUTHORITY_MAX {
        let reason = "a URL whose host cannot be found in it";
        return Some(ArgumentFinding::new("unreadable", reason, HINT));
    }
    let mut others = until_slash.split([
        '@', '\\', '?', '#', ' ', '&', ',', ')', ';', '|', '\0', '<', '>', '"', '\'',
    ]);
    others.find_map(|host| check_host(host, false))
}

/// True if it can be a host name, and is no placeholder like `{host}`.
fn is_host(text: &str) -> bool {
    let named =
        |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']' | '%');
    !text.is_empty() && text.chars().all(named)
}

/// Checks one host with or without a port. `alone`: a single word is a host here too, because such names
/// are resolved by the machine's search list, to internal hosts.
fn check_host(text: &str, alone: bool) -> Option<ArgumentFinding> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c.is_control());
    let host = without_port(text);
    // No name begins with a dot or a star: `.env.local`, `*.local`.
    if host.is_empty() || host.starts_with(['.', '*']) {
        return None;
    }
    let inside = |what: &str| {
        Some(ArgumentFinding::new(
            "inner_host",
            format!("{host} is {what}"),
            HINT,
        ))
    };
    if !alone && is_plain_name(host) {
        return addresses::internal_name_reason(host).and_then(inside);
    }
    if let Some(ip) = parse_ipv6(host) {
        return addresses::internal_v6_reason(ip).and_then(inside);
    }
    // Some clients drop brackets around anything.
    if let Some(inner) = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        return check_host(inner, alone);
    }
    let readings = addresses::possible_v4_addresses(host);
    if let Some(what) = readings.into_iter().find_map(addresses::internal_v4_reason) {
        if alone || host.contains('.') || host.starts_with("0x") {
            return inside(what);
        }
        return None;
    }
    match Host::parse(host) {
        Ok(parsed) => match addresses::internal_host_reason(&parsed) {
            Some(what) => inside(what),
            None if alone && is_single(&parsed) => {
                inside("a single word, which only an inner network resolves")
            }
            None => None,
        },
        Err(_) => addresses::internal_name_reason(host).and_then(inside),
    }
}

/// True for most words of a text: names that a URL parser takes over as they are.
fn is_plain_name(host: &str) -> bool {
    let begins = |label: &str| label.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    begins(host)
        && host.bytes().all(is_plain)
        && host.rsplit('.').next().is_some_and(begins)
        && !host.contains("--")
}

fn is_single(host: &Host<String>) -> bool {
    match host {
        Host::Domain(name) => !name.trim_end_matches('.').contains('.'),
        Host::Ipv4(_) | Host::Ipv6(_) => false,
    }
}

fn without_port(text: &str) -> &str {
    if text.starts_with('[') {
        return text.find(']').map_or(text, |end| &text[..=end]);
    }
    match text.split_once(':') {
        Some(_) if parse_ipv6(text).is_some() => text,
        Some((host, _)) => host,
        None => text,
    }
}

/// Parses an IPv6 address, with or without brackets, and drops its zone.
fn parse_ipv6(host: &str) -> Option<Ipv6Addr> {
    let inner = host.strip_prefix('[').unwrap_or(host);
    let inner = inner.strip_suffix(']').unwrap_or(inner);
    if !inner.contains(':') {
        return None;
    }
    inner.split('%').next()?.parse().ok()
}

/// Checks the whole value of an argument that is named as a URL or a host.
fn check_address(text: &str, role: Role) -> Option<ArgumentFinding> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c.is_control());
    if text.contains("://") || text.contains(char::is_whitespace) {
        return None;
    }
    let slashes = text.chars().take_while(|c| matches!(c, '/' | '\\')).count();
    match (role, slashes) {
        (Role::Host, 0) => text.split([',', ';']).find_map(|text| {
            let first = text.split(['/', '\\', '?', '#']).next()?;
            let host = first.rsplit('@').next()?;
            check_host(host, is_host(host))
        }),
        (_, 1) => None,
        (_, 0) => {
            let first = text.split(['/', '\\', '?', '#']).next()?;
            let host = without_port(first.rsplit('@').next()?);
            let number = !addresses::possible_v4_addresses(host).is_empty();
            check_host(host, number).or_else(|| check_rest(text, false, true, true))
        }
        (_, _) => check_rest(&text[slashes..], true, true, true),
    }
}

/// Checks hosts without a scheme. In prose a bare name is mostly a mention, so it counts only with a port
/// or a path; the words of a command and a value of one word count by themselves.
fn check_words(text: &str, role: Role) -> Option<ArgumentFinding> {
    let single = !text.trim().contains(char::is_whitespace);
    let plainly = match role {
        // A URL is checked as a whole; a word in its query is only a word.
        Role::Command | Role::Args | Role::Url | Role::Host => true,
        // A place such as `destination` may be a host.
        Role::Other | Role::Path => single,
        Role::Sql | Role::Code | Role::Prose => false,
        Role::Method | Role::Mode | Role::Action => single,
    };
    let breaks = |c: char| {
        let is_sign = matches!(
            c,
            '"' | '\'' | '`' | '<' | '>' | '(' | ')' | ',' | ';' | '|' | '&' | '=' | '{' | '}'
        );
        is_sign || c.is_whitespace()
    };
    text.split(breaks)
        .find_map(|word| check_word(word, plainly, role))
}

fn check_word(word: &str, plainly: bool, role: Role) -> Option<ArgumentFinding> {
    let word = word.trim_end_matches(['.', '!', ':', ',']);
    // Most words: a single one is only a mention.
    if !plainly && word.bytes().all(|c| c.is_ascii_alphabetic() || c == b'_') {
        return None;
    }
    if word.starts_with("\\\\") {
        let share = word.trim_start_matches('\\');
        return check_host(share.split(['\\', '/', '@']).next()?, false);
    }
    // `name:80:10.0.0.1`, `user/password@10.0.0.1/x`
    if plainly && word.contains(['@', ':']) {
        let parts = word.split(['@', ':']);
        let before_path = parts.filter_map(|part| part.split('/').next());
        let mut hosts = before_path.filter(|part| part.matches('.').count() == 3);
        let found = hosts.find_map(|part| check_host(part, false));
        if found.is_some() {
            return found;
        }
    }
    let word = word.trim_start_matches(':');
    let is_url = word.starts_with("//");
    let word = word.strip_prefix("//").unwrap_or(word);
    let (first, rest) = match word.find(['/', '?', '#']) {
        Some(at) => word.split_at(at),
        None => (word, ""),
    };
    let host = first.rsplit('@').next()?;
    let dotted = host
        .split(':')
        .next()?
        .split('.')
        .filter(|p| !p.is_empty())
        .count()
        == 4;
    let name = host.chars().any(|c| c.is_ascii_alphabetic()) && !host.starts_with("0x");
    let bracket = host.starts_with('[') || host.matches(':').count() > 1;
    let is_command = matches!(role, Role::Command | Role::Args);
    let is_short = first.contains('.') && check_number(host).is_some() && host.contains(':');
    if !(dotted || name || bracket || is_short) || is_range(rest) && !is_command {
        return None;
    }
    let finding = check_host(host, is_short)?;
    let port = host
        .split_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit()));
    let reached = rest.len() > 1 && rest.starts_with('/') || port || is_url && !rest.is_empty();
    let metadata = finding.reason.ends_with("metadata service of a cloud") && host.contains('.');
    let is_word = matches!(role, Role::Url | Role::Host | Role::Path) && !first.contains('@');
    let counts = plainly && (dotted || bracket || !is_word);
    (counts || reached || metadata).then_some(finding)
}

/// True for `/8` after an address, which makes a block of it, not a host.
fn is_range(rest: &str) -> bool {
    rest.strip_prefix('/')
        .is_some_and(|n| (1..=3).contains(&n.len()) && n.bytes().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// Parts of texts with internal hosts, and of texts without.
    const PIECES: [&str; 40] = [
        "localhost",
        "LocalHost4",
        "metadata",
        "broadcasthost",
        "10.0.0.1",
        "169.254.169.254",
        "2130706433",
        "0x7f000001",
        "127",
        "[::1]",
        "http",
        "ftp",
        "file",
        "nip.io",
        "local",
        "host",
        "server",
        "Fox",
        "q7",
        "word",
        ".",
        ":",
        ";",
        "/",
        "//",
        "@",
        "=",
        "-",
        "?",
        "!",
        "'",
        "\"",
        "(",
        ")",
        "+",
        "*",
        "_",
        ",",
        " ",
        "  ",
    ];

    fn leaf(text: String, role: Role) -> Leaf {
        Leaf {
            path: "/a".into(),
            parent: "".into(),
            object: "".into(),
            key: "a".into(),
            role,
            text,
            kind: ArgumentKind::Text,
        }
    }

    /// MGP-060: a host is looked for in so much of a URL, and no more.
    #[test]
    fn host_is_found_in_a_bounded_authority() {
        let long = |len: usize| format!("https://{}@example.com/", "a".repeat(len - 12));
        let check = |text| check_in_detail(&leaf(text, Role::Url), Role::Url);
        assert_eq!(check(long(AUTHORITY_MAX)), None);
        let finding = check(long(AUTHORITY_MAX + 1));
        assert_eq!(finding.map(|found| found.rule), Some("unreadable"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        /// MGP-060: a plain name is judged as a URL parser reads it.
        #[test]
        fn plain_names_are_judged_as_parsed(pieces in prop::collection::vec(select(&PIECES), 1..6)) {
            let name = pieces.concat();
            if is_plain_name(&name) {
                let reason = match Host::parse(&name) {
                    Ok(parsed) => addresses::internal_host_reason(&parsed),
                    Err(_) => addresses::internal_name_reason(&name),
                };
                prop_assert_eq!(addresses::internal_name_reason(&name), reason, "{:?}", name);
                prop_assert!(addresses::possible_v4_addresses(&name).is_empty(), "{:?}", name);
                prop_assert!(parse_ipv6(&name).is_none(), "{:?}", name);
            }
        }

        /// MGP-060: a text that passes the fast check passes the detailed one.
        #[test]
        fn fast_check_misses_nothing(pieces in prop::collection::vec(select(&PIECES), 1..9)) {
            let text = pieces.concat();
            if is_harmless(&text) {
                for role in [Role::Other, Role::Path, Role::Sql, Role::Code, Role::Prose, Role::Method] {
                    let found = check_in_detail(&leaf(text.clone(), role), role);
                    prop_assert_eq!(found, None, "{:?} as {:?}", text, role);
                }
            }
        }
    }
}
