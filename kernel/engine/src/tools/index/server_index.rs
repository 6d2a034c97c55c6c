//! One server's part of the index. It never changes; a change of the server makes another.

pub(super) mod postings;
pub(super) mod spelling;

use std::sync::Arc;

use mgp_protocol::ids::ServerId;

use self::postings::Postings;
use self::spelling::NameWords;
use super::entry::{IndexDraft, IndexedTool};
use super::terms::split_parts;
use super::vectors::{Vector, VectorRows};

/// Most bytes of a text that is given to a model. It reads 256 words or parts of words.
const TEXT_BYTES_MAX: usize = 2048;

/// What a text is known by: same hash, same vector.
pub(super) type TextHash = [u8; 32];

/// A text to be made a vector, and the name of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingText {
    /// BLAKE3 of the text.
    pub hash: TextHash,
    /// What the model reads; nothing where it is not to.
    pub text: Arc<str>,
}

/// What the vector of a tool is made of.
#[derive(Clone, Debug, PartialEq)]
enum VectorSource {
    /// The server sent one, or its node did.
    Supplied(Vector),
    /// All that is said of it, and its name by itself: a name is the densest thing said.
    Texts {
        whole: EmbeddingText,
        name: EmbeddingText,
    },
    /// The hashes of the same, of a tool of another node: its texts are made vectors there, but a vector of one
    /// that is known here serves as well.
    RemoteHashes { whole: TextHash, name: TextHash },
}

/// The tools of one server.
#[derive(Debug)]
pub struct ServerIndex {
    pub(super) server: ServerId,
    pub(super) entries: Arc<[IndexedTool]>,
    pub(super) postings: Arc<Postings>,
    pub(super) names: Arc<NameWords>,
    pub(super) rows: VectorRows,
    description: EmbeddingText,
    vector_sources: Arc<[VectorSource]>,
}

impl ServerIndex {
    /// Of a server and what it says of itself. No tool has a vector yet, but those that were sent one.
    #[must_use]
    pub fn new(server: &ServerId, about: &str, drafts: Vec<IndexDraft>) -> Self {
        let about = &about[..about.floor_char_boundary(TEXT_BYTES_MAX)];
        let embeds = !server.is_remote();
        let meanings: Arc<[VectorSource]> = drafts
            .iter()
            .map(|draft| vector_source(draft, embeds))
            .collect();
        let postings = Postings::build(server.as_str(), about, &drafts);
        let server = Self {
            server: server.clone(),
            names: Arc::new(NameWords::from_drafts(&drafts)),
            postings: Arc::new(postings),
            entries: drafts.into_iter().map(|draft| draft.entry).collect(),
            rows: VectorRows::default(),
            description: embedding_text(format!("{}: {about}", split_identifier(server.as_str()))),
            vector_sources: meanings,
        };
        server.with_vectors(&mut |_| None)
    }

    /// Its server.
    #[must_use]
    pub fn server(&self) -> &ServerId {
        &self.server
    }

    /// Its tools.
    #[must_use]
    pub fn entries(&self) -> &[IndexedTool] {
        &self.entries
    }

    /// Those that can be found by meaning, by name, each with its vector.
    pub fn vectors(&self) -> impl Iterator<Item = (&Arc<str>, Vector)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(row, entry)| Some((&entry.name, self.rows.vector(row)?)))
    }

    /// How many of them can be found by meaning.
    #[must_use]
    pub fn embedded_count(&self) -> usize {
        self.rows.vector_count()
    }

    /// The texts whose vectors the server wants.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> impl Iterator<Item = &EmbeddingText> {
        let told = self
            .vector_sources
            .iter()
            .filter_map(|meaning| match meaning {
                VectorSource::Texts { whole, name } => Some([whole, name]),
                VectorSource::Supplied(_) | VectorSource::RemoteHashes { .. } => None,
            });
        let mut told = told.flatten().peekable();
        let about = told.peek().is_some().then_some(&self.description);
        about.into_iter().chain(told)
    }

    /// The same, each with how often its tool was called; what is said of the server goes with the
    /// tool that is called most, for no tool has a vector without it.
    pub fn texts_by_usage(&self, uses: &dyn Fn(&str) -> u64) -> Vec<(u64, &EmbeddingText)> {
        let told = self.entries.iter().zip(self.vector_sources.iter());
        let mut texts = Vec::new();
        for (entry, meaning) in told {
            if let VectorSource::Texts { whole, name } = meaning {
                let uses = uses(&entry.name);
                texts.extend([(uses, whole), (uses, name)]);
            }
        }
        let most = texts.iter().map(|(uses, _)| *uses).max();
        most.map_or(texts.clone(), |most| {
            let about = std::iter::once((most, &self.description));
            about.chain(texts).collect()
        })
    }

    /// The same server with what is known by now; of tools of other nodes `known` is told the hashes alone. A tool whose texts are not all known has no vector:
    /// half a meaning would be compared with whole ones.
    #[must_use]
    pub fn with_vectors(&self, known: &mut dyn FnMut(&EmbeddingText) -> Option<Vector>) -> Self {
        let about = known(&self.description);
        let vectors = self.vector_sources.iter().map(|meaning| {
            let (whole, name) = match meaning {
                VectorSource::Supplied(vector) => return Some(vector.clone()),
                VectorSource::Texts { whole, name } => (whole, name),
                VectorSource::RemoteHashes { whole, name } => {
                    (&hash_only_text(*whole), &hash_only_text(*name))
                }
            };
            let about = about.as_ref()?;
            Vector::mean(&[&known(whole)?, &known(name)?, about])
        });
        Self {
            server: self.server.clone(),
            entries: Arc::clone(&self.entries),
            postings: Arc::clone(&self.postings),
            names: Arc::clone(&self.names),
            rows: VectorRows::from_vectors(&vectors.collect::<Vec<_>>()),
            description: self.description.clone(),
            vector_sources: Arc::clone(&self.vector_sources),
        }
    }
}

fn vector_source(draft: &IndexDraft, embeds: bool) -> VectorSource {
    let given = draft
        .embedding
        .as_ref()
        .and_then(|given| Vector::quantize(given));
    if let Some(vector) = draft.vector.clone().or(given) {
        return VectorSource::Supplied(vector);
    }
    let entry = &draft.entry;
    let title = match &*draft.title {
        "" => String::new(),
        title => format!(" {title}:"),
    };
    let parameters = draft.parameters.join(", ");
    let whole = format!(
        "{}:{title} {} ({parameters})",
        entry.name, draft.description
    );
    let (whole, name) = (
        embedding_text(whole),
        embedding_text(split_identifier(&entry.name)),
    );
    if embeds {
        VectorSource::Texts { whole, name }
    } else {
        VectorSource::RemoteHashes {
            whole: whole.hash,
            name: name.hash,
        }
    }
}

/// A text of which only the hash is kept.
fn hash_only_text(hash: TextHash) -> EmbeddingText {
    EmbeddingText {
        hash,
        text: Arc::default(),
    }
}

fn embedding_text(mut text: String) -> EmbeddingText {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    EmbeddingText {
        hash: *blake3::hash(text.as_bytes()).as_bytes(),
        text: text.into(),
    }
}

/// An identifier as a model reads words.
fn split_identifier(identifier: &str) -> String {
    let words = identifier.split([' ', '.', '/', ':']).flat_map(split_parts);
    words.collect::<Vec<_>>().join(" ")
}
