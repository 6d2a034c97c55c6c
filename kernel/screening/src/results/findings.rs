//! What was found in a text: kinds and counts, never the text.

/// A kind of what is found.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $word:literal,)+) => {
        /// What was found. Earlier kinds win where two overlap.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FindingKind {
            $($(#[$doc])* $name,)+
        }

        impl FindingKind {
            /// All of them.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$name),+];

            /// Its name in records and masks.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }
    };
}

kinds! {
    /// A secret of the configuration, or a token of a login.
    Configured "configured",
    /// The value of a member whose name says that it is a secret.
    Named "named",
    /// A private key in PEM.
    PrivateKey "private_key",
    /// What follows `Bearer`.
    Bearer "bearer",
    /// A JSON web token.
    Jwt "jwt",
    /// An access key of AWS.
    Aws "aws",
    /// A token of GitHub.
    GitHub "github",
    /// A token or a webhook of Slack.
    Slack "slack",
    /// A key of Anthropic.
    Anthropic "anthropic",
    /// A key of OpenAI.
    OpenAi "openai",
    /// A key or a token of Google.
    Google "google",
    /// A secret key of Stripe.
    Stripe "stripe",
    /// A pattern of the operator.
    Pattern "pattern",
    /// The number of a payment card.
    Card "card",
    /// An international bank account number.
    Iban "iban",
    /// A social security number of the US.
    Ssn "ssn",
    /// An e-mail address.
    Email "email",
    /// A telephone number.
    Phone "phone",
    /// An IP address.
    Ip "ip",
    /// Characters that nobody sees.
    Unseen "unseen",
    /// Text that reads like instructions.
    Instructions "instructions",
}

/// How often each kind was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Findings([u32; FindingKind::ALL.len()]);

impl Findings {
    /// Counts one of a kind.
    pub fn add(&mut self, kind: FindingKind) {
        self.add_count(kind, 1);
    }

    pub(super) fn add_count(&mut self, kind: FindingKind, count: u32) {
        let counted = &mut self.0[kind as usize];
        *counted = counted.saturating_add(count);
    }

    /// Adds those of another text.
    pub fn merge(&mut self, other: &Self) {
        for (kind, count) in other.iter() {
            self.add_count(kind, count);
        }
    }

    /// How often this kind was found.
    #[must_use]
    pub fn count(&self, kind: FindingKind) -> u32 {
        self.0[kind as usize]
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }

    /// The kinds with their counts: `github 2, email 1`.
    #[must_use]
    pub fn describe(&self) -> String {
        let each = self.iter();
        let each = each.map(|(kind, count)| format!("{} {count}", kind.as_str()));
        each.collect::<Vec<_>>().join(", ")
    }

    /// The kinds that were found.
    pub fn iter(&self) -> impl Iterator<Item = (FindingKind, u32)> {
        let all = FindingKind::ALL.into_iter().zip(self.0);
        all.filter(|(_, count)| *count > 0)
    }
}
