//! Reads the tensors of a safetensors file in place: 8 bytes with the length of a JSON header, the header,
//! the numbers.

use std::collections::HashMap;

use serde::Deserialize;

use crate::EmbedError;

/// Tensors by their names.
pub(crate) struct Tensors {
    entries: HashMap<String, Entry>,
    numbers: &'static [u8],
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

impl Tensors {
    pub(crate) fn parse(file: &'static [u8]) -> Result<Self, EmbedError> {
        let (length, rest) = file.split_first_chunk().ok_or(EmbedError::Truncated)?;
        let length = usize::try_from(u64::from_le_bytes(*length));
        let length = length.map_err(|_| EmbedError::Truncated)?;
        let (header, numbers) = rest.split_at_checked(length).ok_or(EmbedError::Truncated)?;
        let entries = serde_json::from_slice(header).map_err(EmbedError::Weights)?;
        Ok(Self { entries, numbers })
    }

    pub(crate) fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, EmbedError> {
        let (floats, _) = self.tensor(name, "F32", 4, shape)?.as_chunks();
        Ok(floats.iter().map(|n| f32::from_le_bytes(*n)).collect())
    }

    /// Signed bytes, as they are in the file.
    pub(crate) fn bytes(&self, name: &str, shape: &[usize]) -> Result<&'static [u8], EmbedError> {
        self.tensor(name, "I8", 1, shape)
    }

    fn tensor(
        &self,
        name: &str,
        dtype: &str,
        size: usize,
        shape: &[usize],
    ) -> Result<&'static [u8], EmbedError> {
        let length = shape.iter().product::<usize>() * size;
        let matches = |entry: &&Entry| entry.dtype == dtype && entry.shape == shape;
        let entry = self.entries.get(name).filter(matches);
        let bytes = entry.and_then(|entry| {
            let [start, end] = entry.data_offsets;
            self.numbers.get(start..end)
        });
        bytes
            .filter(|bytes| bytes.len() == length)
            .ok_or_else(|| EmbedError::Tensor(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, numbers: &[u8]) -> &'static [u8] {
        let length = (header.len() as u64).to_le_bytes();
        [&length[..], header.as_bytes(), numbers].concat().leak()
    }

    #[test]
    fn tensors_are_read_by_name_type_and_shape() {
        let header = r#"{"a":{"dtype":"I8","shape":[2,1],"data_offsets":[0,2]},
            "b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]},
            "c":{"dtype":"I8","shape":[3],"data_offsets":[4,7]},
            "d":{"dtype":"I8","shape":[3],"data_offsets":[4,6]}}"#;
        let file = file(header, &[1, 255, 0, 0, 192, 63]);
        let tensors = Tensors::parse(file).unwrap();
        assert_eq!(tensors.bytes("a", &[2, 1]).unwrap(), [1, 255]);
        assert_eq!(tensors.floats("b", &[1]).unwrap(), [1.5]);
        assert!(tensors.bytes("a", &[1, 2]).is_err(), "another shape");
        assert!(tensors.floats("a", &[2, 1]).is_err(), "another type");
        assert!(tensors.bytes("c", &[3]).is_err(), "past the end");
        assert!(
            tensors.bytes("d", &[3]).is_err(),
            "fewer bytes than its shape"
        );
        assert!(tensors.bytes("e", &[1]).is_err(), "another name");
        for end in 0..8 + header.len() {
            assert!(Tensors::parse(&file[..end]).is_err(), "{end}");
        }
    }
}
