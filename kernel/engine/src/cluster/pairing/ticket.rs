//! Tickets as text that survives being copied by hand, mailed and read aloud.

use std::fmt;

use mgp_protocol::federation::pairing::TicketId;

/// The prefix of each ticket.
const PREFIX: &str = "mgp1";
/// No letter in it looks like a digit or another letter: `i` and `l` are parsed as 1, `o` as 0.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Letters of a group; groups have a `-` between them, so that a line can break there.
const GROUP_LEN: usize = 8;
/// Bytes of the checksum at the end.
const CHECKSUM_LEN: usize = 4;
/// Most addresses in one ticket.
const ADDRESSES_MAX: usize = 8;
const ADDRESS_LEN_MAX: usize = 80;
/// Longest text that is parsed.
const TEXT_MAX: usize = 4096;

/// The secret of a ticket. Its `Debug` output does not reveal it.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingSecret(pub [u8; 32]);

/// Random bytes of a secret whose issuer supports nonces; the last four bytes mark that.
pub(crate) const RANDOM_LEN: usize = 28;

impl PairingSecret {
    /// A secret that marks that its issuer commits to a nonce (decision 86). To an older node it is a secret like any
    /// other.
    #[must_use]
    pub fn with_nonces(random: &[u8; RANDOM_LEN]) -> Self {
        let mut secret = [0; 32];
        let (first, last) = secret.split_at_mut(RANDOM_LEN);
        first.copy_from_slice(random);
        last.copy_from_slice(&nonce_marker(random));
        Self(secret)
    }

    /// True if its issuer commits to a nonce. A secret of an older issuer looks like that once in 2^32 times, and is
    /// then rejected.
    #[must_use]
    pub fn has_nonces(&self) -> bool {
        let (first, last) = self.0.split_at(RANDOM_LEN);
        nonce_marker(first) == last
    }

    /// The public id of the ticket.
    #[must_use]
    pub fn id(&self) -> TicketId {
        let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 ticket id");
        hasher.update(&self.0);
        let mut id = TicketId([0; 8]);
        hasher.finalize_xof().fill(&mut id.0);
        id
    }
}

fn nonce_marker(random: &[u8]) -> [u8; 32 - RANDOM_LEN] {
    let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 pairing nonces");
    hasher.update(random);
    let mut marker = [0; 32 - RANDOM_LEN];
    hasher.finalize_xof().fill(&mut marker);
    marker
}

impl fmt::Debug for PairingSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PairingSecret(of {})", self.id())
    }
}

/// A ticket, as it is given to the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairingTicket {
    /// The key of the node that issued it.
    pub inviter: [u8; 32],
    /// The hash of the cluster's founding entry.
    pub cluster: [u8; 32],
    /// The secret.
    pub secret: PairingSecret,
    /// When it expires, by the inviter's clock.
    pub expires_ms: u64,
    /// Possible addresses of the inviter, as `host:port`.
    pub addresses: Vec<String>,
}

/// Why a text is no ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTicket {
    /// The prefix is missing.
    #[error("this is no ticket: one begins with mgp1-")]
    Prefix,
    /// A character that no ticket contains.
    #[error("no ticket has the character {0:?}: copy it anew")]
    Character(char),
    /// The checksum is wrong: characters are missing or mistyped.
    #[error("the ticket is not whole, or a character of it is wrong: copy it anew, to the end")]
    Checksum,
    /// It was issued by a later version.
    #[error("the ticket holds what this version does not know: update this side")]
    UnknownVersion,
}

impl PairingTicket {
    /// The text of the ticket. Addresses beyond the eighth, and those that nobody could type, are left out.
    #[must_use]
    pub fn render(&self) -> String {
        let mut bytes = Vec::new();
        bytes.extend(self.inviter);
        bytes.extend(self.cluster);
        bytes.extend(self.secret.0);
        bytes.extend(self.expires_ms.to_be_bytes());
        let fits = |address: &&String| address.len() <= ADDRESS_LEN_MAX;
        for address in self.addresses.iter().filter(fits).take(ADDRESSES_MAX) {
            bytes.push(address.len() as u8);
            bytes.extend(address.as_bytes());
        }
        bytes.extend(checksum(&bytes));
        let letters = encode_base32(&bytes);
        let groups = letters.as_bytes().chunks(GROUP_LEN);
        let groups = groups.map(|group| String::from_utf8_lossy(group).into_owned());
        let groups = groups.collect::<Vec<_>>().join("-");
        format!("{PREFIX}-{groups}")
    }

    /// Parses a text; case, white space, line breaks and `-` do not matter.
    ///
    /// # Errors
    /// [`BadTicket`].
    pub fn parse(text: &str) -> Result<Self, BadTicket> {
        if text.len() > TEXT_MAX {
            return Err(BadTicket::Checksum);
        }
        let plain = text.chars().filter(|c| !c.is_whitespace() && *c != '-');
        let plain: String = plain.map(|c| c.to_ascii_lowercase()).collect();
        let letters = plain.strip_prefix(PREFIX).ok_or(BadTicket::Prefix)?;
        let bytes = decode_base32(letters)?;
        let (bytes, expected) = bytes
            .len()
            .checked_sub(CHECKSUM_LEN)
            .map(|end| bytes.split_at(end))
            .ok_or(BadTicket::Checksum)?;
        if checksum(bytes) != expected {
            return Err(BadTicket::Checksum);
        }
        decode_fields(bytes).ok_or(BadTicket::UnknownVersion)
    }
}

fn decode_fields(bytes: &[u8]) -> Option<PairingTicket> {
    let (inviter, rest) = bytes.split_first_chunk::<32>()?;
    let (cluster, rest) = rest.split_first_chunk::<32>()?;
    let (secret, rest) = rest.split_first_chunk::<32>()?;
    let (expires, mut rest) = rest.split_first_chunk::<8>()?;
    let mut addresses = Vec::new();
    while let Some((len, more)) = rest.split_first() {
        let (address, more) = more.split_at_checked(usize::from(*len))?;
        let address = std::str::from_utf8(address).ok()?;
        let is_valid =
            address.len() <= ADDRESS_LEN_MAX && address.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_valid || addresses.len() >= ADDRESSES_MAX {
            return None;
        }
        addresses.push(address.to_owned());
        rest = more;
    }
    Some(PairingTicket {
        inviter: *inviter,
        cluster: *cluster,
        secret: PairingSecret(*secret),
        expires_ms: u64::from_be_bytes(*expires),
        addresses,
    })
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 ticket check");
    hasher.update(bytes);
    let mut check = [0; CHECKSUM_LEN];
    hasher.finalize_xof().fill(&mut check);
    check
}

fn encode_base32(bytes: &[u8]) -> String {
    let (mut buffer, mut bits) = (0u32, 0u32);
    let mut letters = String::new();
    for byte in bytes {
        buffer = buffer << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            letters.push(char::from(ALPHABET[(buffer >> bits & 31) as usize]));
        }
        buffer &= (1 << bits) - 1;
    }
    if bits > 0 {
        letters.push(char::from(ALPHABET[(buffer << (5 - bits) & 31) as usize]));
    }
    letters
}

fn decode_base32(letters: &str) -> Result<Vec<u8>, BadTicket> {
    let (mut buffer, mut bits) = (0u32, 0u32);
    let mut bytes = Vec::new();
    for letter in letters.chars() {
        let read = match letter {
            'o' => '0',
            'i' | 'l' => '1',
            other => other,
        };
        let digit = ALPHABET.iter().position(|digit| char::from(*digit) == read);
        let digit = digit.ok_or(BadTicket::Character(letter))?;
        buffer = buffer << 5 | digit as u32;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits & 255) as u8);
        }
        buffer &= (1 << bits) - 1;
    }
    // The remaining bits of the last character are zero.
    if buffer == 0 && bits < 5 {
        Ok(bytes)
    } else {
        Err(BadTicket::Checksum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> PairingTicket {
        PairingTicket {
            inviter: [1; 32],
            cluster: [2; 32],
            secret: PairingSecret([0xa7; 32]),
            expires_ms: 1_800_000_000_000,
            addresses: vec!["192.0.2.7:4410".to_owned(), "nas.local:4410".to_owned()],
        }
    }

    #[test]
    fn a_ticket_is_parsed_in_any_layout() {
        let text = ticket().render();
        assert!(text.starts_with("mgp1-") && text.len() < 400, "{text}");
        let wrapped: String = text
            .chars()
            .enumerate()
            .flat_map(|(at, c)| [(at % 60 == 59).then_some('\n'), Some(c)])
            .flatten()
            .collect();
        let spoken = text
            .replace('0', "o")
            .replace('1', "l")
            .replacen('l', "1", 1);
        for copied in [
            text.clone(),
            text.to_uppercase(),
            format!("  {}\r\n", wrapped.replace('\n', "\r\n  ")),
            text.replace('-', " ").replacen(' ', "", 1),
            spoken,
        ] {
            assert_eq!(PairingTicket::parse(&copied), Ok(ticket()), "{copied}");
        }
    }

    /// No slip gives another ticket.
    #[test]
    fn any_mistyped_character_is_detected() {
        let text = ticket().render();
        let plain: Vec<char> = text.chars().collect();
        for at in 5..plain.len() {
            if plain[at] == '-' {
                continue;
            }
            let mut slipped = plain.clone();
            slipped[at] = if slipped[at] == 'x' { 'y' } else { 'x' };
            let slipped: String = slipped.into_iter().collect();
            assert_eq!(
                PairingTicket::parse(&slipped),
                Err(BadTicket::Checksum),
                "{at}"
            );
            let cut: String = plain[..at].iter().collect();
            assert!(PairingTicket::parse(&cut).is_err(), "{at}");
        }
        assert_eq!(PairingTicket::parse("hello"), Err(BadTicket::Prefix));
        assert_eq!(
            PairingTicket::parse("mgp1-ab!"),
            Err(BadTicket::Character('!'))
        );
        assert_eq!(PairingTicket::parse("mgp1-"), Err(BadTicket::Checksum));
    }

    #[test]
    fn a_ticket_marks_whether_its_issuer_supports_nonces() {
        assert!(!ticket().secret.has_nonces());
        let marked = PairingTicket {
            secret: PairingSecret::with_nonces(&[7; RANDOM_LEN]),
            ..ticket()
        };
        let read = PairingTicket::parse(&marked.render()).unwrap();
        assert!(read.secret.has_nonces());
        assert_eq!(marked.render().len(), ticket().render().len());
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let shown = format!("{:?}", ticket());
        assert!(!shown.contains("167"), "{shown}");
    }
}
