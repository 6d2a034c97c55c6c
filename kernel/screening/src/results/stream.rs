//! A text that comes in chunks: what could be the beginning of a match is held back.

use super::ResultGuard;
use super::findings::Findings;
use super::text::{Masker, Masking};
use crate::masks::Masks;

/// Masks a text piece by piece, with the secrets that were known at its start.
#[derive(Debug, Default)]
pub struct TextStream {
    masking: Masking,
}

impl TextStream {
    /// The next part, without what is held back: at most 16 KiB.
    pub fn push(
        &mut self,
        guard: &ResultGuard,
        masks: &Masks,
        text: &str,
        findings: &mut Findings,
    ) -> String {
        let mut out = String::with_capacity(text.len());
        let masker = Masker { guard, masks };
        self.masking.push(masker, text, &mut out, findings);
        out
    }

    /// What was held back at the end.
    pub fn finish(
        &mut self,
        guard: &ResultGuard,
        masks: &Masks,
        findings: &mut Findings,
    ) -> String {
        let mut out = String::new();
        let masker = Masker { guard, masks };
        self.masking.finish(masker, &mut out, findings);
        out
    }

    /// Bytes that are held back.
    #[must_use]
    pub fn held_len(&self) -> usize {
        self.masking.held_len()
    }
}
