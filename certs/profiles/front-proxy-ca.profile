# Verifies those who may speak for users. Never the CA of users.
subject = /CN=dev-front-proxy-ca
kind    = ca
days    = 3650
