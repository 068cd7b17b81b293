CREATE PUBLICATION all_customers FOR TABLE customers;
CREATE PUBLICATION orders_nsw FOR TABLE orders WHERE (region = 'NSW');
CREATE PUBLICATION orders_vic FOR TABLE orders WHERE (region = 'VIC');
CREATE SUBSCRIPTION nsw CONNECTION '' PUBLICATION all_customers, orders_nsw;
CREATE SUBSCRIPTION vic CONNECTION '' PUBLICATION all_customers, orders_vic;
