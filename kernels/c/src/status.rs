//! Results of calls: codes, and their texts.

use std::ffi::CStr;

use recoded_code::{reed_solomon, rlnc};
use recoded_library::Error;

/// The codes that calls return. Later versions may add some.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// A required pointer is NULL or not aligned for its type.
    Pointer = 1,
    /// There is no such code: k, m or the size of the generation is out of range.
    Code = 2,
    /// A size is zero, too large, or not that of the object.
    Size = 3,
    /// An id is out of range or occurs twice.
    Id = 4,
    /// An output overlaps another buffer of the call.
    Overlap = 5,
    /// The encoder has all source symbols of its generation; reset it for the next one.
    Full = 6,
    /// There is nothing to code yet: add a symbol or a packet first.
    Empty = 7,
    /// The packets received so far do not determine this symbol.
    NotDecoded = 8,
    /// Not enough memory.
    Memory = 9,
    /// The memory does not come from `gib_alloc` with this context.
    Foreign = 10,
    /// A fault of the library. Free the object; its state is unknown.
    Internal = 11,
}

impl Status {
    /// All codes.
    const ALL: [Status; 12] = [
        Self::Ok,
        Self::Pointer,
        Self::Code,
        Self::Size,
        Self::Id,
        Self::Overlap,
        Self::Full,
        Self::Empty,
        Self::NotDecoded,
        Self::Memory,
        Self::Foreign,
        Self::Internal,
    ];

    /// The status of a code, `None` if there is no such code.
    pub(crate) fn of(code: i32) -> Option<Status> {
        Self::ALL.into_iter().find(|status| *status as i32 == code)
    }

    /// A text for people, in English.
    pub(crate) const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"done",
            Self::Pointer => c"a required pointer is NULL or not aligned",
            Self::Code => c"no such code: k, m or the generation size is out of range",
            Self::Size => c"a size is zero, too large, or not that of the object",
            Self::Id => c"an id is out of range or occurs twice",
            Self::Overlap => c"an output overlaps another buffer",
            Self::Full => c"the generation has all of its symbols",
            Self::Empty => c"nothing to code yet",
            Self::NotDecoded => c"the symbol is not decoded yet",
            Self::Memory => c"not enough memory",
            Self::Foreign => c"memory that gib_alloc did not provide",
            Self::Internal => c"internal error",
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::ReedSolomon(error) => error.into(),
            Error::Rlnc(error) => error.into(),
            Error::NoBytes | Error::Length { .. } => Self::Size,
            Error::Overlap => Self::Overlap,
            Error::Full { .. } => Self::Full,
            Error::Memory { .. } => Self::Memory,
        }
    }
}

impl From<reed_solomon::Error> for Status {
    fn from(error: reed_solomon::Error) -> Self {
        use reed_solomon::Error;
        match error {
            Error::Shape { .. } => Self::Code,
            Error::Buffers { .. } | Error::Length { .. } | Error::Ids { .. } => Self::Size,
            Error::TooFew { .. } => Self::Size,
            Error::UnknownId { .. } | Error::Repeated { .. } => Self::Id,
        }
    }
}

impl From<rlnc::Error> for Status {
    fn from(error: rlnc::Error) -> Self {
        use rlnc::Error;
        match error {
            Error::Size { .. } => Self::Code,
            Error::Index { .. } => Self::Id,
            Error::VectorLength { .. } | Error::SymbolBytes { .. } => Self::Size,
            Error::Present { .. } => Self::Empty,
            Error::NotDecoded { .. } => Self::NotDecoded,
            // Vectors come from this library's generators, and it counts its own payloads.
            Error::Absent { .. }
            | Error::OutsideField { .. }
            | Error::ZeroVector
            | Error::Payloads { .. }
            | Error::Density { .. } => Self::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_count_up_and_have_different_texts() {
        for (index, status) in Status::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, index);
            assert_eq!(Status::of(index as i32), Some(status));
            let same = Status::ALL.into_iter().filter(|other| other.text() == status.text());
            assert_eq!(same.count(), 1, "{status:?}");
        }
        assert_eq!((Status::of(-1), Status::of(12)), (None, None));
    }
}
