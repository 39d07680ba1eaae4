//! Recall's receipts, sealed by the codec.

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::receipt::RecallReceipt;
use anamnesis_pipeline::codec::Codec;
use anamnesis_pipeline::log::NewRecord;
use anamnesis_recall::receipts::{ReceiptSealer, SealError};
use async_trait::async_trait;

pub struct CodecSealer(pub Codec);

#[async_trait]
impl ReceiptSealer for CodecSealer {
    async fn seal(
        &self,
        receipts: &[(OwnerKey, RecallReceipt)],
    ) -> Result<Vec<NewRecord>, SealError> {
        self.0.seal_receipts(receipts).await.map_err(|error| SealError {
            reason: error.to_string(),
            is_retryable: error.is_retryable(),
        })
    }
}
