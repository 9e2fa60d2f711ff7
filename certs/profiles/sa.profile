# Signs service account tokens: a bare key pair, no certificate.
kind    = signer
