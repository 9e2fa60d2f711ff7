# A user who may do everything.
subject = /O=system:masters/CN=kubernetes-admin
kind    = client
issuer  = client-ca
days    = 365
