//! [`ReviewVersion`]: the version of a review, chosen from those that a webhook's configuration accepts.

/// The version of an AdmissionReview or ConversionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`
    V1,
    /// `v1beta1`, of whose responses neither kind nor UID is checked.
    V1Beta1,
}

impl ReviewVersion {
    /// The first version that is known.
    pub fn choose<'v>(mut accepted: impl Iterator<Item = &'v str>) -> Option<Self> {
        accepted.find_map(|v| match v {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::V1 => Self::V1Beta1,
            Self::V1Beta1 => Self::V1,
        }
    }
}
