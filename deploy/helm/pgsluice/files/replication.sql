-- Change this in your overlay; `pgsluice init` writes one for your database.
CREATE PUBLICATION orders FOR TABLE public.orders;
CREATE SUBSCRIPTION shop CONNECTION '' PUBLICATION orders;
