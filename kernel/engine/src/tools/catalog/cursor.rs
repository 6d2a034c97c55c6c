//! List cursors: opaque to clients, and sealed so that they cannot be forged (MCP-027..029).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::tools::catalog::{CatalogView, ListKind, Readers};

/// Longest accepted cursor, in bytes. Sealed cursors are shorter: names and URIs are bounded.
const CURSOR_MAX: usize = 16 << 10;
const TAG_LEN: usize = blake3::OUT_LEN;

/// The kernel's secret for cursors; a new one makes all old cursors invalid.
#[derive(Clone)]
pub struct CursorKey([u8; blake3::KEY_LEN]);

impl CursorKey {
    /// From 32 bytes of a secure random source.
    #[must_use]
    pub const fn new(bytes: [u8; blake3::KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// A name for an icon that cannot be guessed from its source, and reveals nothing of the key.
    pub(super) fn name_icon(&self, src: &str) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        // A cursor is a JSON object: no source has the tag of one.
        hasher.update(b"icon ");
        hasher.update(src.as_bytes());
        hasher.finalize().to_hex()[..32].to_owned()
    }
}

impl fmt::Debug for CursorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CursorKey(…)")
    }
}

/// The position in a list where a client continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// The list.
    pub(crate) kind: ListKind,
    /// The view it is a list of.
    pub(crate) view: CatalogView,
    /// The clients of that form.
    pub(crate) readers: Readers,
    /// The form with the risk level of each tool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) told: bool,
    /// The list's generation when the cursor was made.
    pub(crate) generation: u64,
    /// How many entries the client had then.
    pub(crate) offset: usize,
    /// Name or URI of the last of them.
    pub(crate) last: String,
}

/// Not a cursor of this kernel, or its position in the list is gone: -32602.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not valid (any more)")]
pub struct BadCursor;

impl Cursor {
    /// The text for the client.
    #[must_use]
    pub(crate) fn seal(&self, key: &CursorKey) -> String {
        let mut bytes = serde_json::to_vec(self).expect("a cursor is always JSON");
        let tag = blake3::keyed_hash(&key.0, &bytes);
        bytes.extend_from_slice(tag.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Opens a cursor of a client.
    ///
    /// # Errors
    /// [`BadCursor`] for a text that [`Cursor::seal`] did not create with the same key.
    pub(crate) fn open(text: &str, key: &CursorKey) -> Result<Self, BadCursor> {
        if text.len() > CURSOR_MAX {
            return Err(BadCursor);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadCursor)?;
        let (payload, tag) = bytes.split_last_chunk::<TAG_LEN>().ok_or(BadCursor)?;
        // Comparing hashes takes constant time.
        if blake3::keyed_hash(&key.0, payload) != blake3::Hash::from_bytes(*tag) {
            return Err(BadCursor);
        }
        serde_json::from_slice(payload).map_err(|_| BadCursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgp_protocol::ids::ServerId;
    use proptest::prelude::*;

    const KEY: CursorKey = CursorKey::new([7; 32]);

    fn cursor(view: CatalogView) -> Cursor {
        Cursor {
            kind: ListKind::Resources,
            view,
            readers: Readers::Legacy,
            told: false,
            generation: 3,
            offset: 1000,
            last: "file:///ü \"x\"".into(),
        }
    }

    #[test]
    fn a_cursor_survives_a_round_trip() {
        for view in [CatalogView::All, CatalogView::One(ServerId::new("files"))] {
            let text = cursor(view.clone()).seal(&KEY);
            assert!(
                text.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            );
            assert_eq!(Cursor::open(&text, &KEY), Ok(cursor(view)));
        }
    }

    /// MCP-029: the empty string is a cursor too, and not one of ours.
    #[test]
    fn foreign_texts_are_rejected_as_cursors() {
        let text = cursor(CatalogView::All).seal(&KEY);
        let another = CursorKey::new([8; 32]);
        assert_eq!(Cursor::open(&text, &another), Err(BadCursor));
        let long = "A".repeat(CURSOR_MAX + 1);
        for bad in ["", "0", "page-2", "AAAA", &text[..text.len() - 1], &long] {
            assert_eq!(Cursor::open(bad, &KEY), Err(BadCursor), "{bad:.20}");
        }
    }

    proptest! {
        #[test]
        fn every_changed_byte_is_detected(at in 0usize..200, to in "[A-Za-z0-9_-]") {
            let text = cursor(CatalogView::All).seal(&KEY);
            let at = at % text.len();
            let mut changed = text.clone();
            changed.replace_range(at..=at, &to);
            if changed != text {
                prop_assert_eq!(Cursor::open(&changed, &KEY), Err(BadCursor));
            }
        }

        #[test]
        fn no_text_breaks_opening(text in "\\PC{0,80}") {
            prop_assert_eq!(Cursor::open(&text, &KEY), Err(BadCursor));
        }
    }
}
